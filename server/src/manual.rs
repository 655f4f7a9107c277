//! Manual pages and shell completions, made from the command line as clap knows it, so that an option
//! added there appears in all of them. Nothing is written by hand here but what no option says.

use crate::arguments::{self, Shell};
use crate::exit::{self, Failure};
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Prints the page of `fairlock`, or writes those of all commands into a folder.
pub(crate) fn man(dir: Option<&Path>) -> Result<u8, Failure> {
    let command = visible();
    let Some(dir) = dir else {
        io::stdout().write_all(&page(command, Vec::new())?)?;
        return Ok(exit::OK);
    };
    let cannot_write = |path: &Path, error: io::Error| {
        Failure::new(
            exit::FAILED,
            format_args!("cannot write {}: {error}", path.display()),
        )
    };
    fs::create_dir_all(dir).map_err(|error| cannot_write(dir, error))?;
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| format!("fairlock-{}", subcommand.get_name()))
        .collect();
    let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
    let mut pages = vec![("fairlock".to_owned(), page(command, names.clone())?)];
    for (name, subcommand) in names.into_iter().zip(subcommands) {
        let invocation = name.replacen('-', " ", 1);
        let subcommand = subcommand.name(name.clone()).bin_name(invocation);
        pages.push((name, page(subcommand, vec!["fairlock".to_owned()])?));
    }
    for (name, page) in pages {
        let path = dir.join(name).with_extension("1");
        fs::write(&path, page).map_err(|error| cannot_write(&path, error))?;
    }
    Ok(exit::OK)
}

/// Prints what a shell has to read to complete `fairlock`.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut command = visible();
    // `fairlock` alone is `fairlock serve`, so its options can be typed without that word.
    let serve: Vec<clap::Arg> = command
        .find_subcommand("serve")
        .map(|serve| serve.get_arguments().cloned().collect())
        .unwrap_or_default();
    command = command.args(serve);
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "fairlock", &mut text);
    io::stdout().write_all(&text)?;
    Ok(exit::OK)
}

/// The command line without what only the program itself calls.
fn visible() -> Command {
    let all = arguments::command().disable_help_subcommand(true);
    let shown: Vec<Command> = all
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .cloned()
        .collect();
    // clap has no way to take a subcommand away, so a new command is made of all the rest.
    let mut command = Command::new("fairlock")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(shown);
    if let Some(about) = all.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after_help) = all.get_after_help() {
        command = command.after_help(after_help.clone());
    }
    command
}

/// One page, with the pages that belong to it at its end.
fn page(command: Command, see_also: Vec<String>) -> Result<Vec<u8>, Failure> {
    let title = command.get_name().to_uppercase();
    let has_subcommands = command.has_subcommands();
    let has_notes = command.get_after_help().is_some();
    let behind_dashes = command
        .get_positionals()
        .find(|argument| argument.is_last_set())
        .and_then(|argument| argument.get_value_names())
        .map(|names| format!("<\\fI{}\\fR>", names.join(" ")));
    let man = Man::new(command)
        .title(title)
        // Without a word here the rest of the head would move one place to the left; a date would not be the
        // same in two builds.
        .date("-")
        .source(concat!("fairlock ", env!("CARGO_PKG_VERSION")))
        .manual("fairlock");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    let mut synopsis = Vec::new();
    man.render_synopsis_section(&mut synopsis)?;
    let mut synopsis = String::from_utf8_lossy(&synopsis).into_owned();
    if let Some(argument) = behind_dashes {
        synopsis = synopsis.replace(&argument, &format!("\\fB\\-\\-\\fR {argument}"));
    }
    text.extend_from_slice(synopsis.as_bytes());
    man.render_options_section(&mut text)?;
    if has_subcommands {
        man.render_subcommands_section(&mut text)?;
    }
    if has_notes {
        let mut notes = Vec::new();
        man.render_extra_section(&mut notes)?;
        let notes = String::from_utf8_lossy(&notes).replacen(".SH EXTRA", ".SH NOTES", 1);
        text.extend_from_slice(notes.as_bytes());
    }
    if !see_also.is_empty() {
        writeln!(text, ".SH SEE ALSO")?;
        let pages: Vec<String> = see_also
            .iter()
            .map(|name| format!("\\fB{}\\fR(1)", name.replace('-', "\\-")))
            .collect();
        writeln!(text, "{}", pages.join(", "))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synopsis_of_run_says_what_stands_before_the_command() {
        let run = visible()
            .find_subcommand("run")
            .expect("there is one")
            .clone();
        let page = page(run, Vec::new()).expect("a page");
        let page = String::from_utf8(page).expect("text");
        assert!(
            page.contains("<\\fIKEY\\fR> \\fB\\-\\-\\fR <\\fICOMMAND ARG\\fR>"),
            "{page}"
        );
    }
}
