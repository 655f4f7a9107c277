//! What a settings file, a variable or an argument says, and what is said of one that is wrong.

use super::*;

/// All settings from the values alone.
fn settle(values: Vec<Value>) -> Result<Settings, Failure> {
    super::settle(values, |_| Ok(()))
}

const SAMPLE: &str = include_str!("../../../fairlock.sample.toml");

fn file(text: &str) -> Result<Settings, String> {
    parse_file(Path::new("f.toml"), text)
        .and_then(settle)
        .map_err(|failure| failure.message)
}

fn at(place: Place, name: &'static str, text: &str) -> Value {
    Value {
        name,
        text: text.to_owned(),
        place,
    }
}

#[test]
fn what_is_given_shows_no_secret() {
    let value = at(Place::Environment, "secret", "open sesame");
    let shown = format!("{value:?}");
    assert!(
        shown.contains("secret") && !shown.contains("sesame"),
        "{shown}"
    );
}

#[test]
fn the_sample_shows_every_setting_with_its_default() {
    assert_eq!(file(SAMPLE).as_ref(), Ok(&Settings::default()));
    // Every setting stands there as a comment with its default, or with an example where it has none.
    let uncommented: String = SAMPLE
        .lines()
        .map(|line| {
            let assignment = line.strip_prefix("# ").filter(|rest| {
                rest.split_once(" = ")
                    .is_some_and(|(name, _)| !name.contains(' '))
            });
            format!("{}\n", assignment.unwrap_or(line))
        })
        .collect();
    let values =
        parse_file(Path::new("fairlock.sample.toml"), &uncommented).expect("the sample is right");
    let defaults = Settings::default();
    for setting in Settings::ALL {
        let shown = values
            .iter()
            .find(|value| value.name == setting.name)
            .unwrap_or_else(|| panic!("the sample lacks {}", setting.name));
        if let Some(default) = defaults.show(setting.name) {
            let mut copy = Settings::default();
            copy.set(setting.name, &shown.text)
                .expect("a default is right");
            assert_eq!(copy.show(setting.name), Some(default), "{}", setting.name);
        }
    }
    assert_eq!(values.len(), Settings::ALL.len());
}

#[test]
fn a_wrong_setting_names_itself_its_place_and_what_would_be_right() {
    for (text, expected) in [
        (
            "\nlisen = \"127.0.0.1:1\"",
            "f.toml, line 2: there is no setting lisen; perhaps listen",
        ),
        (
            "data-dir = \"x\"",
            "f.toml, line 1: there is no setting data-dir; perhaps data_dir",
        ),
        (
            "[server]\nlisten = \"x\"",
            "f.toml, line 1: there is no setting server",
        ),
        (
            "listen = 7420",
            "f.toml, line 1: listen must be text in quotes",
        ),
        (
            "max_keys = \"5\"",
            "f.toml, line 1: max_keys must be a whole number, without quotes",
        ),
        (
            "ephemeral = 1",
            "f.toml, line 1: ephemeral must be true or false, without quotes",
        ),
        (
            "max_lease = true",
            "f.toml, line 1: max_lease must be a number of seconds, without quotes",
        ),
    ] {
        assert_eq!(file(text), Err(expected.to_owned()));
    }
    for (text, is_told) in [
        ("listen = 127.0.0.1:7450", true),
        ("data_dir = /var/lib/fairlock", true),
        ("max_unread = 8MiB", true),
        ("journal_sync = batch", true),
        ("max_keys = 5x", false),
        ("listen = \"127.0.0.1:7450", false),
    ] {
        let message = file(text).expect_err(text);
        let told = message.ends_with("; text stands in quotes");
        assert_eq!(told, is_told, "{text}: {message}");
    }
    for text in [
        "max_lease = nan",
        "max_lease = inf",
        "max_lease = -1",
        "max_lease = 0",
        "max_keys = -1",
        "max_keys = 0",
        "max_keys = 99999999999999999999",
        "listen = \"nowhere\"",
        "listen = \"0.0.0.0:7420\"",
        "listen = ",
        "listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
        "ephemeral = true\ndata_dir = \"x\"",
        "secret = \"x\"\nsecret_file = \"y\"",
    ] {
        let message = file(text).expect_err(text);
        assert!(message.starts_with("f.toml, line "), "{text}: {message}");
    }
}

#[test]
fn an_argument_beats_the_environment_and_that_beats_the_file() {
    let in_file = || Place::File {
        path: PathBuf::from("f.toml"),
        line: 1,
    };
    let settings = settle(vec![
        at(Place::Argument, "max_keys", "3"),
        at(Place::Environment, "max_keys", "2"),
        at(Place::Environment, "max_waiters", "2"),
        at(in_file(), "max_keys", "1"),
        at(in_file(), "max_waiters", "1"),
        at(in_file(), "max_connections", "1"),
    ])
    .expect("they go together");
    assert_eq!(
        (
            settings.max_keys,
            settings.max_waiters,
            settings.max_connections
        ),
        (3, 2, 1)
    );
}

#[test]
fn what_the_file_says_in_vain_is_told_without_its_value() {
    let in_file = |line| Place::File {
        path: PathBuf::from("f.toml"),
        line,
    };
    let lines = overruled(&[
        at(in_file(1), "listen", "127.0.0.1:1"),
        at(in_file(2), "max_keys", "1"),
        at(in_file(3), "max_waiters", "1"),
        at(in_file(4), "secret", "sesame"),
        at(Place::Environment, "listen", "127.0.0.1:2"),
        at(Place::Argument, "listen", "127.0.0.1:3"),
        at(Place::Environment, "max_keys", "1"),
        at(Place::Environment, "secret_file", "x"),
    ]);
    assert_eq!(
        lines,
        [
            "--listen counts and not f.toml, line 1: listen",
            "FAIRLOCK_SECRET_FILE counts and not f.toml, line 4: secret",
        ]
    );
}

#[test]
fn of_two_ways_to_say_one_thing_the_stronger_place_wins() {
    let settings = settle(vec![
        at(Place::Environment, "data_dir", "/somewhere"),
        at(Place::Argument, "ephemeral", "true"),
    ])
    .expect("the argument wins");
    assert!(settings.ephemeral && settings.data_dir.is_none());
    let settings = settle(vec![
        at(Place::Environment, "ephemeral", "true"),
        at(Place::Argument, "data_dir", "/somewhere"),
    ])
    .expect("the argument wins");
    assert!(!settings.ephemeral && settings.data_dir.is_some());
    let failure = settle(vec![
        at(Place::Argument, "data_dir", "/somewhere"),
        at(Place::Argument, "ephemeral", "true"),
    ])
    .expect_err("nobody wins");
    assert!(
        failure.message.starts_with("--ephemeral is `true`: "),
        "{}",
        failure.message
    );
}
