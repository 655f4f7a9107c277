//! The settings of a server from three places: the TOML file, the environment, the arguments. All
//! three are made from the table `Settings::ALL`, so a setting has one name everywhere. A wrong
//! setting names itself, its place and what would be right; one that does not exist is refused.

use crate::defaults;
use crate::exit::Failure;
use crate::misspelled;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, FromArgMatches};
use fairlock::node::{Setting, SettingError, SettingKind, Settings};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Two ways to say one thing: where both are said, the stronger place wins.
const ALTERNATIVES: [(&str, &str); 4] = [
    ("data_dir", "ephemeral"),
    ("secret", "secret_file"),
    ("cluster_secret", "cluster_secret_file"),
    ("admin_secret", "admin_secret_file"),
];

/// Where a value comes from; a later one is stronger.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File { path: PathBuf, line: usize },
    Environment,
    Argument,
}

impl Place {
    fn strength(&self) -> u8 {
        match self {
            Place::File { .. } => 0,
            Place::Environment => 1,
            Place::Argument => 2,
        }
    }

    /// The setting as the user wrote it at this place.
    fn spell(&self, name: &str) -> String {
        match self {
            Place::File { path, line } => format!("{}, line {line}: {name}", path.display()),
            Place::Environment => variable(name),
            Place::Argument => option(name),
        }
    }
}

/// What the command line and the environment say about the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    config: Option<PathBuf>,
    values: Vec<Value>,
}

#[derive(Clone)]
struct Value {
    name: &'static str,
    /// May be a secret, so nothing shows it.
    text: String,
    place: Place,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

fn option(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

fn variable(name: &str) -> String {
    format!("FAIRLOCK_{}", name.to_uppercase())
}

impl Args for Given {
    fn augment_args(command: clap::Command) -> clap::Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("FAIRLOCK_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help(
                "A settings file in TOML; fairlock.sample.toml shows all settings [default: none]",
            );
        let defaults = Settings::default();
        let options = Settings::ALL
            .iter()
            .filter(|setting| setting.kind != SettingKind::Secret)
            .map(|setting| argument(setting, &defaults));
        command.arg(config).args(options)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn argument(setting: &Setting, defaults: &Settings) -> Arg {
    let default = match defaults::in_words(setting.name) {
        Some(words) => words.to_owned(),
        None => defaults
            .show(setting.name)
            .unwrap_or_else(|| "none".to_owned()),
    };
    let argument = Arg::new(setting.name)
        .long(setting.name.replace('_', "-"))
        .env(variable(setting.name))
        .hide_env_values(true)
        .allow_hyphen_values(true)
        .help(format!(
            "{} [default: {default}]",
            setting.help.trim().trim_end_matches('.').replace('\n', " ")
        ));
    match setting.kind {
        SettingKind::Text if setting.name == "peers" => argument.value_name("A,B,C"),
        SettingKind::Flag => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .allow_hyphen_values(false)
            .value_name("true|false"),
        SettingKind::Text => argument.value_name("HOST:PORT"),
        SettingKind::Path => argument
            .value_name("PATH")
            .value_hint(clap::ValueHint::AnyPath),
        SettingKind::Number => argument.value_name("N"),
        SettingKind::Seconds => argument.value_name("SECONDS"),
        SettingKind::Bytes => argument.value_name("BYTES"),
        SettingKind::Spin => argument.value_name("auto|off|MICROSECONDS"),
        SettingKind::Secret => argument.value_name("SECRET"),
        SettingKind::Choice(words) => argument.value_name(words.join("|")),
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Given {
            config: matches.get_one::<PathBuf>("config").cloned(),
            values: Vec::new(),
        };
        for setting in Settings::ALL {
            if setting.kind == SettingKind::Secret {
                continue;
            }
            let place = match matches.value_source(setting.name) {
                Some(ValueSource::CommandLine) => Place::Argument,
                Some(ValueSource::EnvVariable) => Place::Environment,
                _ => continue,
            };
            if let Some(text) = matches.get_one::<String>(setting.name) {
                given.values.push(Value {
                    name: setting.name,
                    text: text.clone(),
                    place,
                });
            }
        }
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Given {
    /// The settings to run with: file, environment and arguments on top of the defaults, those that are found now among
    /// them. And a line for each of the file that counts for nothing, because a stronger place says something else.
    pub(crate) fn settings(&self) -> Result<(Settings, Vec<String>), Failure> {
        let mut values = match &self.config {
            Some(path) => read_file(path)?,
            None => Vec::new(),
        };
        values.extend(secrets_of_environment()?);
        values.extend(self.values.iter().cloned());
        let lines = overruled(&values);
        let settings = settle(values, |settings| {
            if settings.data_dir.is_none() && !settings.ephemeral {
                let found =
                    defaults::data_dir(settings.node.as_deref(), |name| std::env::var_os(name));
                settings.data_dir = Some(found.ok_or_else(|| {
                    Failure::usage(
                        "there is no HOME to keep data under: give --data-dir DIR, or --ephemeral",
                    )
                })?);
            }
            Ok(())
        })?;
        Ok((settings, lines))
    }
}

/// Secrets are no arguments, so clap does not read their variables.
fn secrets_of_environment() -> Result<Vec<Value>, Failure> {
    let secrets = Settings::ALL
        .iter()
        .filter(|setting| setting.kind == SettingKind::Secret);
    let mut values = Vec::new();
    for setting in secrets {
        // An empty one is refused as every wrong secret is: it is what is left of a secret that somebody forgot to fill in.
        let Some(text) = std::env::var_os(variable(setting.name)) else {
            continue;
        };
        let text = text.into_string().map_err(|_| {
            Failure::usage(format_args!(
                "{} is not text in UTF-8; put such a secret into a file and say {}",
                variable(setting.name),
                variable(&format!("{}_file", setting.name)),
            ))
        })?;
        values.push(Value {
            name: setting.name,
            text,
            place: Place::Environment,
        });
    }
    Ok(values)
}

/// The values of the file that another place says otherwise.
fn overruled(values: &[Value]) -> Vec<String> {
    let is_rival = |one: &str, other: &str| {
        ALTERNATIVES.contains(&(one, other)) || ALTERNATIVES.contains(&(other, one))
    };
    let of_file = values.iter().filter(|value| value.place.strength() == 0);
    let lines = of_file.filter_map(|value| {
        let stronger = values.iter().filter(|other| {
            let differs = other.name == value.name && other.text != value.text;
            let replaces = is_rival(other.name, value.name)
                && [&other.text, &value.text]
                    .iter()
                    .all(|text| *text != "false");
            other.place.strength() > 0 && (differs || replaces)
        });
        let strongest = stronger.max_by_key(|other| other.place.strength())?;
        let (counts, ignored) = (
            strongest.place.spell(strongest.name),
            value.place.spell(value.name),
        );
        Some(format!("{counts} counts and not {ignored}"))
    });
    lines.collect()
}

/// Puts values on top of each other, the strongest last, fills in what nobody has set, and checks that all of it goes
/// together.
fn settle(
    mut values: Vec<Value>,
    fill: impl FnOnce(&mut Settings) -> Result<(), Failure>,
) -> Result<Settings, Failure> {
    values.sort_by_key(|value| value.place.strength());
    let strongest: HashMap<&str, u8> = values
        .iter()
        .filter(|value| value.text != "false")
        .map(|value| (value.name, value.place.strength()))
        .collect();
    let beaten = |value: &Value| {
        ALTERNATIVES.iter().any(|(one, other)| {
            let rival = match value.name {
                name if name == *one => other,
                name if name == *other => one,
                _ => return false,
            };
            strongest
                .get(rival)
                .is_some_and(|strength| *strength > value.place.strength())
        })
    };
    let mut settings = Settings::default();
    let mut places: HashMap<&str, Place> = HashMap::new();
    for value in values.iter().filter(|value| !beaten(value)) {
        settings
            .set(value.name, &value.text)
            .map_err(|error| failure(&error, Some(&value.place)))?;
        places.insert(value.name, value.place.clone());
    }
    // Before the check: a setting that needs another one needs what that is in the end.
    fill(&mut settings)?;
    settings
        .check()
        .map_err(|error| failure(&error, places.get(error.name.as_str())))?;
    Ok(settings)
}

fn failure(error: &SettingError, place: Option<&Place>) -> Failure {
    let (name, value) = match (place, error.value.as_str()) {
        (Some(place), "") => (place.spell(&error.name), "empty".to_owned()),
        (Some(place), value) => (place.spell(&error.name), format!("`{value}`")),
        (None, "") => (option(&error.name), "missing".to_owned()),
        (None, value) => (error.name.clone(), format!("`{value}`")),
    };
    Failure::usage(format_args!("{name} is {value}: {}", error.expected))
}

fn read_file(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format_args!(
            "cannot read the settings file {}: {error}",
            path.display()
        ))
    })?;
    parse_file(path, &text)
}

fn parse_file(path: &Path, text: &str) -> Result<Vec<Value>, Failure> {
    let line_of = |offset: usize| {
        1 + text
            .bytes()
            .take(offset)
            .filter(|byte| *byte == b'\n')
            .count()
    };
    let wrong = |offset: usize, message: fmt::Arguments<'_>| {
        Failure::usage(format_args!(
            "{}, line {}: {message}",
            path.display(),
            line_of(offset)
        ))
    };
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let hint = if lacks_quotes(text, line_of(offset)) {
            "; text stands in quotes"
        } else {
            ""
        };
        wrong(offset, format_args!("{}{hint}", error.message()))
    })?;
    let mut values = Vec::new();
    for (key, value) in table.get_ref() {
        let offset = key.span().start;
        let name: &str = key.get_ref();
        let Some(setting) = Settings::ALL.iter().find(|setting| setting.name == name) else {
            let nearest =
                misspelled::nearest(name).map_or(String::new(), |near| format!("; perhaps {near}"));
            return Err(wrong(
                offset,
                format_args!("there is no setting {name}{nearest}"),
            ));
        };
        let text = value_text(setting, value.get_ref())
            .map_err(|expected| wrong(offset, format_args!("{name} must be {expected}")))?;
        values.push(Value {
            name: setting.name,
            text,
            place: Place::File {
                path: path.to_owned(),
                line: line_of(offset),
            },
        });
    }
    values.sort_by_key(|value| match value.place {
        Place::File { line, .. } => line,
        _ => 0,
    });
    Ok(values)
}

/// Whether the value in this line begins as text would without its quotes, and belongs to a setting that takes text.
fn lacks_quotes(text: &str, line: usize) -> bool {
    let assignment = text
        .lines()
        .nth(line - 1)
        .and_then(|line| line.split_once('='));
    let Some((name, value)) = assignment else {
        return false;
    };
    let is_bare = |letter: char| letter.is_alphanumeric() || "/.[~-$:".contains(letter);
    let takes_text = |setting: &Setting| {
        setting.name == name.trim()
            && !matches!(
                setting.kind,
                SettingKind::Flag | SettingKind::Number | SettingKind::Seconds
            )
    };
    value.trim_start().starts_with(is_bare) && Settings::ALL.iter().any(takes_text)
}

/// A value of the file as text, if it is of the type that the setting has.
fn value_text(setting: &Setting, value: &DeValue<'_>) -> Result<String, &'static str> {
    let expected = match setting.kind {
        SettingKind::Text | SettingKind::Path | SettingKind::Secret => "text in quotes",
        SettingKind::Flag => "true or false, without quotes",
        SettingKind::Number => "a whole number, without quotes",
        SettingKind::Seconds => "a number of seconds, without quotes",
        SettingKind::Bytes => "a number of bytes, or text such as \"8MiB\"",
        SettingKind::Spin => "\"auto\", \"off\" or a number of microseconds",
        SettingKind::Choice(_) => "one of its words, in quotes",
    };
    let text = match (setting.kind, value) {
        (SettingKind::Text | SettingKind::Path | SettingKind::Secret, DeValue::String(text)) => {
            text.to_string()
        }
        (
            SettingKind::Bytes | SettingKind::Spin | SettingKind::Choice(_),
            DeValue::String(text),
        ) => text.to_string(),
        (SettingKind::Flag, DeValue::Boolean(flag)) => flag.to_string(),
        (
            SettingKind::Number | SettingKind::Seconds | SettingKind::Bytes | SettingKind::Spin,
            DeValue::Integer(number),
        ) if number.radix() == 10 => number.as_str().to_owned(),
        (SettingKind::Seconds, DeValue::Float(number)) => number.as_str().to_owned(),
        _ => return Err(expected),
    };
    Ok(text)
}

#[cfg(test)]
mod tests;
