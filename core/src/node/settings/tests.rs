use super::*;
use crate::node::error::ServerError;

fn refused(change: impl FnOnce(&mut Settings)) -> SettingError {
    let mut settings = Settings::default();
    change(&mut settings);
    settings.check().expect_err("a wrong setting is refused")
}

#[test]
fn the_defaults_are_right_and_survive_being_shown_and_read() {
    let defaults = Settings::default();
    defaults.check().expect("the defaults go together");
    let mut copy = Settings::default();
    for setting in Settings::ALL {
        if let Some(text) = defaults.show(setting.name) {
            copy.set(setting.name, &text)
                .expect("what is shown can be read");
        }
        assert!(!setting.help.trim().is_empty());
    }
    assert_eq!(copy, defaults);
}

#[test]
fn the_admin_page_needs_a_secret_beyond_loopback() {
    let error = refused(|settings| settings.admin = Some("0.0.0.0:0".to_owned()));
    assert_eq!(error.name, "admin");
    assert!(
        error.expected.contains("admin_secret_file"),
        "{}",
        error.expected
    );
    // That of the locks is another one.
    let error = refused(|settings| {
        settings.admin = Some("0.0.0.0:0".to_owned());
        settings.secret = Some(Secret::new("x"));
    });
    assert_eq!(error.name, "admin");
    let error = refused(|settings| {
        settings.admin_secret = Some(Secret::new("x"));
        settings.admin_secret_file = Some("y".into());
    });
    assert_eq!(error.name, "admin_secret_file");
    let error = refused(|settings| settings.admin = Some("nowhere".to_owned()));
    assert_eq!(error.name, "admin");
    let mut settings = Settings::default();
    assert!(settings.admin_addresses().is_ok_and(|none| none.is_empty()));
    settings.admin = Some("0.0.0.0:0".to_owned());
    settings.admin_secret = Some(Secret::new("x"));
    settings.check().expect("it is protected");
}

#[test]
fn values_are_read_as_users_write_them() {
    let mut settings = Settings::default();
    for (name, text) in [
        ("listen", "[::1]:0"),
        ("max_lease", "0.5"),
        ("max_unread", "1MiB"),
        ("spin", "50"),
        ("insecure", "true"),
        ("secret", "open sesame"),
    ] {
        settings.set(name, text).expect(name);
    }
    assert_eq!(settings.listen_address(), "[::1]:0");
    assert_eq!(settings.max_lease, Duration::from_millis(500));
    assert_eq!(settings.max_unread, Bytes(1 << 20));
    assert_eq!(settings.spin, Spin::Micros(50));
    assert!(settings.insecure);
    settings.check().expect("they go together");
    assert_eq!(settings.show("secret"), None);
    assert!(!format!("{settings:?}").contains("sesame"));
}

#[test]
fn a_wrong_text_names_the_setting_the_value_and_what_is_right() {
    let mut settings = Settings::default();
    for (name, text) in [
        ("max_keys", "many"),
        ("max_keys", "-1"),
        ("max_lease", "NaN"),
        ("max_lease", "-1"),
        ("max_lease", "inf"),
        ("max_lease", "1e300"),
        ("max_unread", "8 apples"),
        ("max_unread", "99999999999999999999GiB"),
        ("ephemeral", "perhaps"),
        ("spin", "always"),
        ("data_dir", ""),
        ("no_such_setting", "1"),
    ] {
        let error = settings.set(name, text).expect_err(text);
        assert_eq!((error.name.as_str(), error.value.as_str()), (name, text));
        assert!(!error.expected.is_empty());
    }
    assert_eq!(settings, Settings::default());
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    for (name, error) in [
        ("listen", refused(|s| s.listen = Some("0.0.0.0:0".into()))),
        ("listen", refused(|s| s.listen = Some("[::]:0".into()))),
        ("listen", refused(|s| s.listen = Some("localhost".into()))),
        ("listen", refused(|s| s.listen = Some("::1:7420".into()))),
        (
            "listen",
            refused(|s| s.listen = Some("127.0.0.1:99999".into())),
        ),
        (
            "advertise",
            refused(|s| s.advertise = Some("nowhere".into())),
        ),
        ("max_lease", refused(|s| s.max_lease = Duration::ZERO)),
        ("max_keys", refused(|s| s.max_keys = 0)),
        ("max_unread", refused(|s| s.max_unread = Bytes(1))),
        ("spin", refused(|s| s.spin = Spin::Micros(2_000_000))),
        ("secret", refused(|s| s.secret = Some(Secret::new("")))),
        (
            "secret",
            refused(|s| s.secret = Some(Secret::new([b'x'; 513]))),
        ),
        (
            "ephemeral",
            refused(|s| {
                s.ephemeral = true;
                s.data_dir = Some("x".into());
            }),
        ),
        (
            "secret_file",
            refused(|s| {
                s.secret = Some(Secret::new("x"));
                s.secret_file = Some("x".into());
            }),
        ),
    ] {
        assert_eq!(error.name, name, "{error}");
    }
}

/// A change of one setting that spoils a good cluster.
type Spoil = fn(&mut Settings);

#[test]
fn a_cluster_that_cannot_be_names_the_setting_and_the_reason() {
    let cases: [(&str, &str, Spoil); 12] = [
        ("node", "none of `peers`", |s| s.node = Some("d:1".into())),
        ("node", "which of `peers`", |s| s.node = None),
        ("node", "`peers` is missing", |s| s.peers = None),
        ("peers", "twice", |s| {
            s.peers = Some("127.0.0.1:1,b:1,b:1".into())
        }),
        ("peers", "not an address", |s| {
            s.peers = Some("127.0.0.1:1,b".into())
        }),
        ("peers", "at most 16", |s| {
            let all: Vec<String> = (1..=17).map(|port| format!("127.0.0.1:{port}")).collect();
            s.peers = Some(all.join(","));
        }),
        ("sync_standbys", "only 2 other", |s| s.sync_standbys = 3),
        ("sync_strict", "needs", |s| s.sync_strict = true),
        ("failure_timeout", "three times", |s| {
            s.heartbeat = Duration::from_millis(400)
        }),
        ("cluster_secret", "between 1 and", |s| {
            s.cluster_secret = Some(Secret::new(""))
        }),
        ("users_file", "nodes are no users", |s| {
            s.users_file = Some("x".into())
        }),
        ("cluster_secret_file", "leave one", |s| {
            s.cluster_secret = Some(Secret::new("x"));
            s.cluster_secret_file = Some("x".into());
        }),
    ];
    let good = Settings {
        peers: Some("127.0.0.1:1,b:1,-,c:1".into()),
        node: Some("127.0.0.1:1".into()),
        ..Settings::default()
    };
    good.check().expect("a good cluster");
    assert_eq!(good.listen_address(), "127.0.0.1:1");
    for (name, reason, spoil) in cases {
        let mut settings = good.clone();
        spoil(&mut settings);
        let error = settings.check().expect_err(reason);
        assert_eq!(error.name, name, "{error}");
        assert!(error.expected.contains(reason), "{error}");
    }
}

#[test]
fn beyond_loopback_a_secret_or_insecure_is_enough() {
    for protect in [
        |s: &mut Settings| s.secret = Some(Secret::new("x")),
        |s: &mut Settings| s.secret_file = Some("x".into()),
        |s: &mut Settings| s.insecure = true,
        |s: &mut Settings| s.users_file = Some("x".into()),
    ] {
        let mut settings = Settings {
            listen: Some("0.0.0.0:0".into()),
            ..Settings::default()
        };
        protect(&mut settings);
        settings.check().expect("protected");
    }
}

/// Goal: a name service that is not there yet is no wrong setting. Method: names that no service knows.
#[test]
fn names_are_asked_for_when_they_are_bound_and_not_before() {
    let settings = Settings {
        listen: Some("no-such-host.invalid:7420".into()),
        admin: Some("no-such-host.invalid:7429".into()),
        ..Settings::default()
    };
    settings.check().expect("the form is right");
    for (found, name) in [
        (settings.addresses(), "listen"),
        (settings.admin_addresses(), "admin"),
    ] {
        match found {
            Err(ServerError::LookUp { setting, .. }) => assert_eq!(setting, name),
            other => panic!("{other:?}"),
        }
    }
    // What a name stands for may still need a secret, which no other try mends.
    let error = refused(|settings| {
        settings.listen = Some("same.example:7420".into());
        settings.admin = Some("same.example:7420".into());
    });
    assert_eq!(error.name, "admin");
}

#[test]
fn only_the_same_secret_matches() {
    let secret = Secret::new("sesame");
    assert!(secret.matches(b"sesame"));
    for wrong in [&b""[..], b"sesam", b"sesame2", b"Sesame", b"sesamE"] {
        assert!(!secret.matches(wrong));
    }
}
