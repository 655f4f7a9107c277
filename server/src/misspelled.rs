//! Names that are none but look like one: what may have been meant. A wrong setting in a file is refused
//! elsewhere; a wrong variable is only told, because container platforms put variables of their own beside ours.

use fairlock::node::Settings;

/// Variables of the client commands.
const CLIENT: [&str; 8] = [
    "servers",
    "secret",
    "secret_file",
    "ca_file",
    "cert_file",
    "key_file",
    "server_name",
    "tls",
];

/// Variables that no command reads as a setting: where the file is, and what `run` starts its command with.
const OTHERS: [&str; 3] = ["config", "key", "token"];

/// The setting whose name is most like a wrong one, if any is.
pub(crate) fn nearest(wrong: &str) -> Option<&'static str> {
    nearest_of(wrong, Settings::ALL.iter().map(|setting| setting.name))
}

/// The variables of the server's environment that look like a setting and are none, with the one that may be meant.
pub(crate) fn variables_of_server() -> Vec<(String, String)> {
    variables(nearest)
}

/// The same for a client command.
pub(crate) fn variables_of_client() -> Vec<(String, String)> {
    variables(|wrong| nearest_of(wrong, CLIENT.into_iter()))
}

fn variables(nearest: impl Fn(&str) -> Option<&'static str>) -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter_map(|name| {
            let setting = name.strip_prefix("FAIRLOCK_")?.to_lowercase();
            let near = nearest(&setting).filter(|_| !is_known(&setting))?;
            Some((name, format!("FAIRLOCK_{}", near.to_uppercase())))
        })
        .collect()
}

/// Who starts both from one environment has the variables of both in it.
fn is_known(setting: &str) -> bool {
    Settings::ALL.iter().any(|known| known.name == setting)
        || CLIENT.contains(&setting)
        || OTHERS.contains(&setting)
}

fn nearest_of(wrong: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let wrong = wrong.replace('-', "_").to_lowercase();
    names
        .map(|name| (distance(&wrong, name), name))
        .min()
        .filter(|(distance, name)| distance * 3 <= name.len())
        .map(|(_, name)| name)
}

/// How many letters have to be changed, put in or taken out to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
