//! The one sentence that a wrong argument gets: what clap says in several lines, and behind it what was probably meant.
//! Only words are looked at here; nothing is read or corrected.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::any::TypeId;
use std::ffi::OsString;

/// What other programs call an option of ours.
const OPTIONS: [(&str, &str); 12] = [
    ("--timeout", "--wait"),
    ("-w", "--wait"),
    ("--ttl", "--lease"),
    ("--expire", "--lease"),
    ("--nonblock", "--no-wait"),
    ("--nb", "--no-wait"),
    ("-n", "--no-wait"),
    ("--host", "--servers"),
    ("--address", "--servers"),
    ("--endpoints", "--servers"),
    ("--cacert", "--ca-file"),
    ("--secret", "--secret-file"),
];

/// What other programs call a command of ours.
const COMMANDS: [(&[&str], &str); 6] = [
    (
        &["lock"],
        "`fairlock run KEY -- COMMAND`, or `fairlock acquire KEY`",
    ),
    (&["unlock", "free"], "`fairlock release KEY TOKEN`"),
    (&["renew", "refresh", "extend"], "`fairlock keep KEY TOKEN`"),
    (&["list", "ls"], "`fairlock locks`"),
    (&["get", "show"], "`fairlock inspect KEY`"),
    (&["server", "start"], "`fairlock serve`"),
];

/// The sentence for `error`. `words` are the command line from the name of the program on, `is_implied` says that its
/// `serve` was typed by nobody.
pub(crate) fn sentence(
    command: &Command,
    words: &[OsString],
    is_implied: bool,
    error: &clap::Error,
) -> String {
    let text = with_short_words(error.render().to_string(), error);
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let sentence = in_one_line(first);
    let line = Line {
        of: words.get(1).and_then(|word| command.find_subcommand(word)),
        command,
        words,
        is_implied,
        error,
    };
    if let Some(variable) = line.variable_without_text() {
        return format!("{variable} is not text in UTF-8");
    }
    if let Some((option, variable)) = line.variable() {
        return sentence.replace(&option, variable);
    }
    let usage = text.split("Usage: ").nth(1);
    match (line.hint(), error.kind(), usage) {
        (Some(hint), _, _) => sentence + "; " + &hint,
        (None, ErrorKind::MissingRequiredArgument, Some(usage)) => {
            let usage = usage.split("\n\n").next().unwrap_or_default();
            sentence + "; usage: " + &in_one_line(usage)
        }
        (None, ..) => sentence,
    }
}

/// How much is shown of a word of the command line.
const SHOWN: usize = 60;

/// What was typed is named, but not at any length.
fn with_short_words(mut text: String, error: &clap::Error) -> String {
    for kind in [
        ContextKind::InvalidValue,
        ContextKind::InvalidArg,
        ContextKind::InvalidSubcommand,
    ] {
        if let Some(ContextValue::String(word)) = error.get(kind)
            && let Some((end, _)) = word.char_indices().nth(SHOWN)
        {
            text = text.replace(word.as_str(), &format!("{}…", &word[..end]));
        }
    }
    text
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A command line that was refused.
struct Line<'a> {
    /// The command that it is for.
    of: Option<&'a Command>,
    command: &'a Command,
    words: &'a [OsString],
    is_implied: bool,
    error: &'a clap::Error,
}

impl Line<'_> {
    fn hint(&self) -> Option<String> {
        let argument = self.context(ContextKind::InvalidArg);
        match (self.error.kind(), argument) {
            (ErrorKind::UnknownArgument, Some(argument)) => self
                .options_before_their_command(argument)
                .or_else(|| self.flag_with_a_space(argument))
                .or_else(|| self.other_name(argument))
                .or_else(|| self.suggestion())
                .or_else(|| self.command_of_run()),
            (ErrorKind::InvalidSubcommand, _) => {
                let wrong = self.context(ContextKind::InvalidSubcommand)?;
                let known = COMMANDS.iter().find(|(names, _)| names.contains(&wrong));
                known
                    .map(|(_, meant)| format!("perhaps {meant}"))
                    .or_else(|| self.suggestion())
            }
            _ => self.suggestion(),
        }
    }

    fn context(&self, kind: ContextKind) -> Option<&str> {
        match self.error.get(kind)? {
            ContextValue::String(text) => Some(text),
            _ => None,
        }
    }

    fn suggestion(&self) -> Option<String> {
        let suggestion = self
            .error
            .get(ContextKind::SuggestedArg)
            .or(self.error.get(ContextKind::SuggestedSubcommand))?;
        Some(format!("perhaps {suggestion}"))
    }

    /// `fairlock --servers X status`: without a command in the first place all of it is for `serve`.
    fn options_before_their_command(&self, argument: &str) -> Option<String> {
        if !self.is_implied {
            return None;
        }
        let options = &self.words[2..];
        let place = options
            .iter()
            .position(|word| self.command.find_subcommand(word).is_some());
        let Some(place) = place else {
            let mut commands = self.command.get_subcommands();
            return commands
                .any(|one| has_option(one, argument))
                .then(|| format!("{argument} is an option of a command, and stands behind it"));
        };
        let name = options[place].to_str()?;
        if argument != name && !has_option(self.command.find_subcommand(name)?, argument) {
            return None;
        }
        // Without their values, which may be what nobody else should see.
        let names = options[..place]
            .iter()
            .filter_map(|word| word.to_str()?.split('=').next())
            .filter(|word| word.starts_with('-'))
            .collect::<Vec<_>>();
        Some(format!(
            "the options of a command stand behind it: fairlock {name} {} …",
            names.join(" ")
        ))
    }

    /// `--keep-state false`: a flag takes its value behind `=`.
    fn flag_with_a_space(&self, argument: &str) -> Option<String> {
        if !matches!(argument, "true" | "false") {
            return None;
        }
        let place = self.words.iter().position(|word| word == argument)?;
        let flag = self.words[place - 1].to_str()?;
        let flag_takes_a_value = option(self.of?, flag)?.is_require_equals_set();
        flag_takes_a_value.then(|| format!("say {flag}={argument}"))
    }

    /// An option under the name that another program gives it.
    fn other_name(&self, argument: &str) -> Option<String> {
        let (_, meant) = OPTIONS.iter().find(|(other, _)| *other == argument)?;
        has_option(self.of?, meant).then(|| format!("perhaps {meant}"))
    }

    /// `run k ls -l`: only what stands behind `--` is for the command.
    fn command_of_run(&self) -> Option<String> {
        let takes_a_command = self.of?.get_positionals().any(clap::Arg::is_last_set);
        let has_dashes = self.words.iter().any(|word| word == "--");
        (takes_a_command && !has_dashes).then(|| "COMMAND goes behind --".to_owned())
    }

    /// The variable that a wrong value comes from, where the option that clap names was typed by nobody.
    fn variable(&self) -> Option<(String, &str)> {
        let shown = self.context(ContextKind::InvalidArg)?;
        let name = shown.split([' ', '=']).next()?;
        let is_typed = |word: &OsString| {
            let word = word.to_string_lossy();
            word.split('=').next() == Some(name)
        };
        if self.words.iter().any(is_typed) {
            return None;
        }
        let variable = option(self.of?, name)?.get_env()?;
        std::env::var_os(variable)?;
        Some((format!("'{shown}'"), variable.to_str()?))
    }

    /// The variable with bytes that are no text, where the words are all text. clap names nothing in that case.
    fn variable_without_text(&self) -> Option<&str> {
        let is_text = |word: &OsString| word.to_str().is_some();
        if self.error.kind() != ErrorKind::InvalidUtf8 || !self.words.iter().all(is_text) {
            return None;
        }
        let mut of_text = self
            .of?
            .get_arguments()
            .filter(|argument| argument.get_value_parser().type_id() == TypeId::of::<String>());
        of_text.find_map(|argument| {
            let name = argument.get_env()?;
            let value = std::env::var_os(name)?;
            value.to_str().is_none().then(|| name.to_str())?
        })
    }
}

fn has_option(command: &Command, option_name: &str) -> bool {
    option(command, option_name).is_some()
}

fn option<'a>(command: &'a Command, name: &str) -> Option<&'a clap::Arg> {
    let name = name.strip_prefix("--")?;
    command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(name))
}
