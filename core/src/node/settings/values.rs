//! The kinds of values that settings have: how each is read from text and shown as a user would write it.

use super::SettingKind;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A secret. It never shows up in a log or in the text of an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the bytes that a client has to say.
    pub fn new(secret: impl Into<Vec<u8>>) -> Secret {
        Secret(secret.into())
    }

    /// Whether `given` is this secret. Takes the same time wherever the two differ.
    #[must_use]
    pub fn matches(&self, given: &[u8]) -> bool {
        let mut difference = u8::from(self.0.len() != given.len());
        for (index, expected) in self.0.iter().enumerate() {
            // A shorter input is compared with itself at the end, so that the time depends on our own length alone.
            difference |= expected ^ given.get(index).copied().unwrap_or(!*expected);
        }
        std::hint::black_box(difference) == 0
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How long a node keeps looking for the next request before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Only while it has lately paid, and never while somebody else wants the core.
    #[default]
    Auto,
    /// Never.
    Off,
    /// This many microseconds after each request, paying or not.
    Micros(u32),
}

/// A value of a setting: how it is read and shown.
pub(super) trait Value: Sized {
    const KIND: SettingKind;
    /// Reads it; the error says what would be right.
    fn read(text: &str) -> Result<Self, &'static str>;
    /// Shows it as a user would write it.
    fn show(&self) -> Option<String>;
}

impl Value for String {
    const KIND: SettingKind = SettingKind::Text;
    fn read(text: &str) -> Result<Self, &'static str> {
        Ok(text.to_owned())
    }
    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for PathBuf {
    const KIND: SettingKind = SettingKind::Path;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("must be a path");
        }
        Ok(PathBuf::from(text))
    }
    fn show(&self) -> Option<String> {
        Some(self.display().to_string())
    }
}

impl Value for bool {
    const KIND: SettingKind = SettingKind::Flag;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| "must be `true` or `false`")
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u32 {
    const KIND: SettingKind = SettingKind::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse()
            .map_err(|_| "must be a whole number between 0 and 4294967295")
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for Duration {
    const KIND: SettingKind = SettingKind::Seconds;
    fn read(text: &str) -> Result<Self, &'static str> {
        let seconds =
            f64::from_str(text).map_err(|_| "must be a number of seconds, such as 0.5")?;
        let micros = (seconds * 1e6).round();
        if !(0.0..1e15).contains(&micros) {
            return Err("must be a number of seconds, neither negative nor beyond a billion");
        }
        Ok(Duration::from_micros(micros as u64))
    }
    fn show(&self) -> Option<String> {
        Some(self.as_secs_f64().to_string())
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Value for Bytes {
    const KIND: SettingKind = SettingKind::Bytes;
    fn read(text: &str) -> Result<Self, &'static str> {
        let units = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("", 1),
        ];
        let (digits, unit) = units
            .iter()
            .find_map(|(unit, size)| {
                text.strip_suffix(unit)
                    .map(|digits| (digits.trim_end(), *size))
            })
            .expect("every text ends in the empty one");
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit))
            .map(Bytes)
            .ok_or("must be a number of bytes, such as 8388608 or 8MiB")
    }
    fn show(&self) -> Option<String> {
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let unit = units
            .iter()
            .find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        Some(unit.map_or_else(
            || self.0.to_string(),
            |(unit, size)| format!("{}{unit}", self.0 / size),
        ))
    }
}

impl Value for Secret {
    const KIND: SettingKind = SettingKind::Secret;
    fn read(text: &str) -> Result<Self, &'static str> {
        Ok(Secret::new(text))
    }
    fn show(&self) -> Option<String> {
        None
    }
}

impl Value for Spin {
    const KIND: SettingKind = SettingKind::Spin;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Spin::Auto),
            "off" => Ok(Spin::Off),
            _ => text
                .parse()
                .map(Spin::Micros)
                .map_err(|_| "must be `auto`, `off` or a number of microseconds"),
        }
    }
    fn show(&self) -> Option<String> {
        Some(match self {
            Spin::Auto => "auto".to_owned(),
            Spin::Off => "off".to_owned(),
            Spin::Micros(micros) => micros.to_string(),
        })
    }
}

/// Makes a choice of words, each with its meaning.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident: $expected:literal, $($(#[doc = $meaning:literal])+ $variant:ident = $word:literal,)+) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $meaning])+ $variant,)+
        }

        impl Value for $name {
            const KIND: SettingKind = SettingKind::Choice(&[$($word),+]);
            fn read(text: &str) -> Result<Self, &'static str> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err($expected),
                }
            }
            fn show(&self) -> Option<String> {
                Some(match self {
                    $($name::$variant => $word.to_owned(),)+
                })
            }
        }
    };
}

choice! {
    /// Whether clients are asked for a certificate.
    ClientAuth: "must be `off`, `optional` or `required`",
    /// They are not.
    Off = "off",
    /// One that is shown has to be good, but none has to be shown.
    Optional = "optional",
    /// Without a good one there is no connection.
    Required = "required",
}

choice! {
    /// How the log is written.
    LogFormat: "must be `text` or `json`",
    /// A line of text for each event.
    Text = "text",
    /// A JSON object in a line for each event.
    Json = "json",
}

choice! {
    /// What is logged.
    LogLevel: "must be `error`, `warn` or `info`",
    /// What the node cannot do.
    Error = "error",
    /// And what an operator should look at.
    Warn = "warn",
    /// And what has changed: roles, terms, links.
    Info = "info",
}

/// What grants wait for before their clients hear of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalSync {
    /// Until they are written, so that they outlast the end of the process.
    #[default]
    None,
    /// Until they are on disk, so that they outlast a power cut. One wait serves all that have come meanwhile.
    Batch,
}

impl Value for JournalSync {
    const KIND: SettingKind = SettingKind::Choice(&["none", "batch"]);
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "none" => Ok(JournalSync::None),
            "batch" => Ok(JournalSync::Batch),
            _ => Err("must be `none` or `batch`"),
        }
    }
    fn show(&self) -> Option<String> {
        let text = match self {
            JournalSync::None => "none",
            JournalSync::Batch => "batch",
        };
        Some(text.to_owned())
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: SettingKind = T::KIND;
    fn read(text: &str) -> Result<Self, &'static str> {
        T::read(text).map(Some)
    }
    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }
}
