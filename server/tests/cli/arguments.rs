//! Wrong arguments: exit code 64, one sentence on standard error, nothing on standard output.

use crate::support::{Folder, fairlock, outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Goal: a sentence stays one that can be read, whatever was typed.
#[test]
fn a_long_word_is_named_by_its_beginning() {
    let long = "k\u{e9}".repeat(2000);
    let option = format!("--{long}");
    for (words, part) in [
        (&["inspect", &long][..], "a key has at most 512 bytes"),
        (&["locks", "--prefix", &long], "no key is longer"),
        (&["release", "k", &long], "a token is a whole number"),
        (&["acquire", "--lease", &long, "k"], "--lease"),
        (&["status", &option], "unexpected argument"),
        (&[&long], "unrecognized"),
    ] {
        let outcome = outcome(fairlock(words));
        assert_eq!(outcome.code, 64, "{outcome:?}");
        assert!(outcome.err.contains(part), "{outcome:?}");
        assert!(outcome.err.contains("k\u{e9}k"), "{outcome:?}");
        assert!(outcome.err.chars().count() < 300, "{outcome:?}");
    }
}

/// Goal: no wrong argument gets through, and each is named. Method: a table; no server is needed,
/// because a wrong argument is found before anything is sent.
#[test]
fn wrong_arguments_are_refused_with_a_sentence_that_names_them() {
    let long_key = "k".repeat(513);
    let times = [
        "NaN",
        "nan",
        "-1",
        "inf",
        "infinity",
        "1e3",
        "0.0001",
        "31536001",
        "1e300",
        "99999999999999999999",
        "",
        "abc",
        "1s",
    ];
    let mut table: Vec<(Vec<String>, &str)> = Vec::new();
    let mut wrong = |words: &[&str], part: &'static str| {
        table.push((words.iter().map(|word| (*word).to_owned()).collect(), part));
    };
    for time in times.into_iter().chain(["0", "0.0"]) {
        wrong(&["acquire", "--lease", time, "k"], "--lease");
        wrong(&["run", "--lease", time, "k", "--", "true"], "--lease");
        wrong(&["keep", "--lease", time, "k", "1"], "--lease");
    }
    for time in times.into_iter().chain(["0.0", "00"]) {
        wrong(&["acquire", "--wait", time, "k"], "--wait");
        wrong(&["run", "--wait", time, "k", "--", "true"], "--wait");
    }
    for command in ["acquire", "inspect", "waiters"] {
        wrong(&[command, ""], "KEY");
        wrong(&[command, &long_key], "KEY");
        wrong(&[command], "KEY");
        wrong(&[command, "k", "extra"], "extra");
        wrong(&[command, "--frobnicate", "k"], "--frobnicate");
    }
    for token in [
        "0",
        "-1",
        "+1",
        "1.5",
        "abc",
        "",
        "9223372036854775808",
        "99999999999999999999999",
    ] {
        wrong(&["release", "k", token], "TOKEN");
        wrong(&["keep", "k", token], "TOKEN");
    }
    wrong(&["release", "k"], "TOKEN");
    wrong(&["release"], "KEY");
    wrong(&["run", "k"], "<KEY> -- <COMMAND>");
    wrong(&["run", "k", "true"], "COMMAND goes behind --");
    wrong(&["run", "", "--", "true"], "KEY");
    wrong(
        &["run", "--lease", "0.5", "k", "--", "true"],
        "--no-keep-alive",
    );
    wrong(
        &["run", "--wait", "1", "--no-wait", "k", "--", "true"],
        "--no-wait",
    );
    wrong(
        &["run", "--on-lost", "explode", "k", "--", "true"],
        "--on-lost",
    );
    wrong(
        &["run", "--timeout-code", "256", "k", "--", "true"],
        "--timeout-code",
    );
    wrong(
        &["run", "--lost-code", "-1", "k", "--", "true"],
        "--lost-code",
    );
    wrong(&["locks", "--prefix", &long_key], "--prefix");
    wrong(&["locks", "k"], "k");
    wrong(&["status", "--frobnicate"], "--frobnicate");
    wrong(&["bench", "--connections", "0"], "--connections");
    wrong(&["bench", "--connections", "-1"], "--connections");
    wrong(&["bench", "--depth", "many"], "--depth");
    wrong(&["bench", "--seconds", "0"], "--seconds");
    wrong(&["bench", "--seconds", "NaN"], "--seconds");
    wrong(&["bench", "--seconds", "100000"], "--seconds");
    wrong(
        &["acquire", "--servers", "not an address:x", "k"],
        "not an address",
    );
    wrong(&["acquire", "--servers", "host:99999", "k"], "99999");
    for command in ["status", "locks"] {
        wrong(&[command, "--servers", "a:1 b:2"], "commas stand between");
    }
    wrong(
        &["acquire", "--secret-file", "/no/such/file", "k"],
        "/no/such/file",
    );
    wrong(&["frobnicate"], "frobnicate");
    wrong(&["acquier", "k"], "acquire");
    wrong(&["--frobnicate"], "--frobnicate");
    wrong(&["--secret", "x"], "--secret");
    for value in ["-1", "NaN", "inf", "0", "1e300", "abc", ""] {
        wrong(&["--max-lease", value], "--max-lease");
        wrong(&["serve", "--max-keys", value], "--max-keys");
    }
    wrong(&["--listen", "nowhere"], "--listen");
    wrong(&["--listen", "0.0.0.0:0", "--ephemeral"], "--listen");
    wrong(&["--ephemeral=perhaps"], "--ephemeral");
    wrong(&["--ephemeral", "--data-dir", "/tmp/x"], "--ephemeral");
    wrong(&["--config", "/no/such/file.toml"], "/no/such/file.toml");
    for (words, part) in table {
        let outcome = outcome(fairlock(&words));
        assert_eq!(outcome.code, 64, "{words:?}: {outcome:?}");
        assert_eq!(outcome.out, "", "{words:?}");
        assert!(
            outcome.err.contains(part),
            "{words:?} lacks {part}: {outcome:?}"
        );
        assert_eq!(outcome.err.lines().count(), 1, "{words:?}: {outcome:?}");
        assert!(
            outcome.err.starts_with("fairlock: "),
            "{words:?}: {outcome:?}"
        );
    }
}

/// Goal: a wrong setting names itself, its place and what would be right, wherever it stands.
#[test]
fn a_wrong_setting_names_its_place() {
    let folder = Folder::new("settings");
    for (text, expected) in [
        (
            "# first\nlisen = \"x\"\n",
            "line 2: there is no setting lisen; perhaps listen",
        ),
        (
            "max_keys = \"5\"",
            "line 1: max_keys must be a whole number, without quotes",
        ),
        (
            "ephemeral = \"yes\"",
            "line 1: ephemeral must be true or false",
        ),
        ("max_lease = nan", "line 1: max_lease is `nan`"),
        ("max_lease = -3", "line 1: max_lease is `-3`"),
        ("max_lease = inf", "line 1: max_lease is `inf`"),
        (
            "reattach_grace = 1e300",
            "line 1: reattach_grace is `1e300`",
        ),
        ("listen = 7420", "line 1: listen must be text in quotes"),
        ("listen = \n", "line 1: "),
        (
            "[nodes]\nlisten = \"x\"",
            "line 1: there is no setting nodes",
        ),
    ] {
        let file = folder.write("wrong.toml", text);
        let outcome = outcome(fairlock(["--config", &file]));
        assert_eq!(outcome.code, 64, "{text}: {outcome:?}");
        assert!(
            outcome.err.contains(&format!("{file}, {expected}")),
            "{text}: {outcome:?}"
        );
        assert_eq!(outcome.err.lines().count(), 1, "{text}: {outcome:?}");
    }
    let mut command = fairlock(["--ephemeral"]);
    command.env("FAIRLOCK_MAX_WAITERS", "many");
    let outcome = outcome(command);
    assert_eq!(outcome.code, 64);
    assert!(
        outcome.err.contains("FAIRLOCK_MAX_WAITERS is `many`: "),
        "{outcome:?}"
    );
}

/// Goal: who has typed no option is told of the variable. Method: a client's variable with values to choose from, and
/// variables that are no text.
#[test]
fn a_wrong_variable_is_named_and_not_the_option_that_nobody_typed() {
    let no_text = OsStr::from_bytes(b"\xff");
    for (words, variable, value, expected) in [
        (
            &["status"][..],
            "FAIRLOCK_TLS",
            OsStr::new("1"),
            "'1' for FAIRLOCK_TLS",
        ),
        (
            &["locks"],
            "FAIRLOCK_SERVERS",
            no_text,
            "FAIRLOCK_SERVERS is not text",
        ),
        (
            &[],
            "FAIRLOCK_MAX_KEYS",
            no_text,
            "FAIRLOCK_MAX_KEYS is not text",
        ),
    ] {
        let mut command = fairlock(words);
        command.env(variable, value);
        let outcome = outcome(command);
        assert_eq!(outcome.code, 64, "{outcome:?}");
        assert!(
            outcome.err.contains(expected) && !outcome.err.contains("--"),
            "{outcome:?}"
        );
    }
}

/// Goal: keys of any bytes are arguments; only NUL cannot be. Method: it gets as far as the network.
#[test]
fn keys_that_are_no_text_are_accepted() {
    let key = OsString::from_vec(vec![0xFF, b'\n', 0x01]);
    let mut command = fairlock(["inspect", "--servers", "127.0.0.1:1"]);
    command.arg(key);
    assert_eq!(outcome(command).code, 69);
}

#[test]
fn help_and_version_are_printed_and_are_no_failure() {
    for words in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help", "run"],
        &["run", "--help"],
        &["serve", "--help"],
        &["bench", "--help"],
        &["locks", "-h"],
    ] {
        let outcome = outcome(fairlock(words));
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{words:?}");
        assert!(
            outcome.out.contains("fairlock"),
            "{words:?}: {}",
            outcome.out
        );
    }
    let version = outcome(fairlock(["--version"]));
    assert_eq!(
        version.out,
        format!("fairlock {}\n", env!("CARGO_PKG_VERSION"))
    );
}

/// Goal: FAIRLOCK_KEY and FAIRLOCK_TOKEN are what `run` gives its command, never settings; an empty
/// variable counts as none.
#[test]
fn variables_that_are_no_settings_change_nothing() {
    let mut command = fairlock(["status", "--servers", "127.0.0.1:1"]);
    command
        .env("FAIRLOCK_KEY", "a")
        .env("FAIRLOCK_TOKEN", "x")
        .env("FAIRLOCK_SECRET_FILE", "");
    assert_eq!(outcome(command).code, 69);
}
