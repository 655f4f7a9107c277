//! The defaults that are found when the server starts and stand in no table: where the data goes, and how the help text
//! and the documents say so. Nothing here makes a folder.

use std::ffi::OsString;
use std::path::PathBuf;

/// What a setting is where nobody sets it, if that is not known before the start.
pub(crate) fn in_words(setting: &str) -> Option<&'static str> {
    match setting {
        "listen" => Some("127.0.0.1:7420, or `node`"),
        "data_dir" => Some(
            "`$STATE_DIRECTORY`, or `$XDG_STATE_HOME/fairlock` and a folder for each `node` in it",
        ),
        _ => None,
    }
}

/// The folder for a server that was not told where to keep its data: the one that systemd made for it, or one in the
/// user's state folder, where nodes of one machine have a folder each. None where there is no home.
pub(crate) fn data_dir(
    node: Option<&str>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let of_user = || {
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        let state = state.join("fairlock");
        Some(match node {
            Some(node) => state.join(node.replace('/', "_")),
            None => state,
        })
    };
    absolute("STATE_DIRECTORY").or_else(of_user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_goes_to_the_folder_of_the_service_or_to_the_state_folder_of_the_user() {
        let with_node = |node, pairs: &'static [(&str, &str)]| {
            data_dir(node, move |name| {
                let pair = pairs.iter().find(|(candidate, _)| *candidate == name);
                pair.map(|(_, value)| OsString::from(value))
            })
        };
        let with = |pairs| with_node(None, pairs);
        let service = &[
            ("STATE_DIRECTORY", "/var/lib/fairlock"),
            ("HOME", "/home/a"),
        ];
        assert_eq!(with(service), Some(PathBuf::from("/var/lib/fairlock")));
        assert_eq!(with_node(Some("a:7420"), service), with(service));
        assert_eq!(
            with_node(Some("a/b:7420"), &[("HOME", "/home/a")]),
            Some(PathBuf::from("/home/a/.local/state/fairlock/a_b:7420"))
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "/state"), ("HOME", "/home/a")]),
            Some(PathBuf::from("/state/fairlock"))
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/home/a")]),
            Some(PathBuf::from("/home/a/.local/state/fairlock"))
        );
        assert_eq!(with(&[]), None);
    }
}
