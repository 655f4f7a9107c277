//! The table of users over its changes.

use super::file::users_of;
use super::*;
use crate::engine::ConnectionId;
use crate::engine::{Engine, EngineSettings, Time};
use crate::node::connection::Greeting;
use crate::node::counters::Counters;
use crate::node::listing::Listing;
use crate::protocol::{Prefix, Tag};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const ID: ConnectionId = ConnectionId {
    index: 0,
    generation: 1,
};

fn entry(name: &str, proof: &str, keys: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\n{proof}\nkeys = [\"{keys}\"]\n")
}

fn table(text: &str) -> Users {
    Users::new(users_of(text)).expect("random numbers")
}

fn name_of(admission: &Admission) -> Option<&str> {
    match admission {
        Admission::As(Some(user)) => Some(&user.name),
        _ => None,
    }
}

/// Who this text lets in, with every check that it takes done at once.
fn admit(users: &mut Users, text: &str) -> Admission {
    let admission = users.admit(ID, HERE, text.as_bytes(), false);
    let Admission::Later = admission else {
        return admission;
    };
    let (said, secret, hash) = users.checks.begin().expect("a check");
    let (ids, greeting) = users.settle(&said, hash.is_of(secret.bytes()));
    assert!(ids.contains(&ID));
    users.admit(ID, HERE, text.as_bytes(), greeting == Greeting::Unproven)
}

fn hashed(secret: &str) -> String {
    let hash = hash_secret(secret.as_bytes()).expect("random numbers");
    format!("secret_hash = \"{hash}\"")
}

#[test]
fn name_and_secret_together_let_a_user_in_and_nothing_else_does() {
    let text = entry("plain", "secret = \"one\"", "") + &entry("hashed", &hashed("two:2"), "");
    let users = &mut table(&text);
    for (said, name) in [
        ("plain:one", Some("plain")),
        ("hashed:two:2", Some("hashed")),
        ("one", None),
        ("plain", None),
        ("plain:", None),
        ("plain:two:2", None),
        ("hashed:one", None),
        ("hashed:two", None),
        ("nobody:two:2", None),
        (":two:2", None),
        ("", None),
    ] {
        let admission = admit(users, said);
        assert_eq!(name_of(&admission), name, "{said}: {admission:?}");
    }
}

/// Goal: a reconnect storm costs no hashing.
#[test]
fn a_secret_that_was_right_is_known_at_once_until_it_changes() {
    let first = hashed("one");
    let users = &mut table(&entry("a", &first, "x"));
    assert!(matches!(
        users.admit(ID, HERE, b"a:one", false),
        Admission::Later
    ));
    assert_eq!(name_of(&admit(users, "a:one")), Some("a"));
    assert_eq!(name_of(&users.admit(ID, HERE, b"a:one", false)), Some("a"));
    users.replace(users_of(&entry("a", &first, "x")));
    assert_eq!(
        name_of(&users.admit(ID, HERE, b"a:one", false)),
        Some("a"),
        "unchanged"
    );
    users.replace(users_of(&entry("a", &first, "y")));
    assert_eq!(
        name_of(&users.admit(ID, HERE, b"a:one", false)),
        Some("a"),
        "other keys and the same secret"
    );
    users.replace(users_of(&entry("a", &hashed("two"), "x")));
    assert_eq!(name_of(&admit(users, "a:one")), None);
    assert_eq!(name_of(&admit(users, "a:two")), Some("a"));
}

#[test]
fn who_is_not_as_before_is_retired_and_nobody_else() {
    let before = entry("same", "secret = \"1\"", "a")
        + &entry("gone", "secret = \"2\"", "a")
        + &entry("keys", "secret = \"3\"", "a")
        + &entry("secret", "secret = \"4\"", "a");
    let users = &mut table(&before);
    let of = |users: &Users| {
        let mut all: Vec<Arc<User>> = users.all.values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    };
    let old = of(users);
    let after = entry("same", "secret = \"1\"", "a")
        + &entry("keys", "secret = \"3\"", "b")
        + &entry("secret", "secret = \"5\"", "a")
        + &entry("new", "secret = \"6\"", "a");
    users.replace(users_of(&after));
    let retired = |users: &[Arc<User>]| {
        let retired = users.iter().filter(|user| user.is_retired());
        retired.map(|user| user.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(retired(&old), ["gone", "keys", "secret"]);
    assert_eq!(retired(&of(users)), [""; 0]);
    let present = |user: &Arc<User>| users.present(user).map(|user| user.name.clone());
    let present: Vec<_> = old.iter().filter_map(present).collect();
    assert_eq!(present, ["keys", "same"], "whose hello would still do");
    for (said, known) in [
        ("same:1", true),
        ("keys:3", true),
        ("gone:2", false),
        ("secret:4", false),
        ("secret:5", true),
    ] {
        assert_eq!(name_of(&admit(users, said)).is_some(), known, "{said}");
    }
}

/// Goal: the verdict of a check counts only for the file that it was asked of.
#[test]
fn a_check_that_ends_after_a_change_is_made_anew() {
    let users = &mut table(&entry("a", &hashed("one"), "x"));
    for (said, fits) in [(&b"a:one"[..], true), (b"a:two", false)] {
        assert!(matches!(
            users.admit(ID, HERE, said, false),
            Admission::Later
        ));
        let (digest, ..) = users.checks.begin().expect("a check");
        users.replace(users_of(&entry("a", &hashed("two"), "x")));
        assert_eq!(users.settle(&digest, fits), (vec![ID], Greeting::Awaited));
        assert!(matches!(
            users.admit(ID, HERE, said, false),
            Admission::Later
        ));
        let (digest, ..) = users.checks.begin().expect("a check");
        users.settle(&digest, false);
    }
}

/// Goal: however many come with wrong secrets, what they take is bounded, and equal ones take as much as one.
#[test]
fn checks_and_those_who_wait_for_them_are_bounded() {
    let users = &mut table(&entry("a", &hashed("one"), "x"));
    let busy = |admission: Admission| matches!(admission, Admission::Busy);
    for number in 0..admission::MOST_CHECKS {
        let place = IpAddr::V4(Ipv4Addr::from(number as u32));
        let said = format!("a:{number}");
        assert!(!busy(users.admit(ID, place, said.as_bytes(), false)));
    }
    assert!(busy(users.admit(ID, HERE, b"a:one", false)));
    for _ in admission::MOST_CHECKS..admission::MOST_WAITING {
        assert!(!busy(users.admit(ID, HERE, b"a:0", false)));
    }
    assert!(busy(users.admit(ID, HERE, b"a:0", false)));
    let (said, ..) = users.checks.begin().expect("a check");
    let (ids, _) = users.settle(&said, false);
    assert_eq!(
        ids.len(),
        1 + admission::MOST_WAITING - admission::MOST_CHECKS
    );
    assert!(!busy(users.admit(ID, HERE, b"a:one", false)));
}

/// Method: as many wrong secrets as one place may have checked, of an IPv6 network from as many addresses.
#[test]
fn a_flood_of_wrong_secrets_from_one_place_leaves_checks_to_others() {
    let network = |number: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number));
    for from in [|_| HERE, network] {
        let users = &mut table(&entry("a", &hashed("one"), "x"));
        for number in 0..=admission::MOST_CHECKS_OF_ONE {
            let said = format!("a:{number}");
            let admission = users.admit(ID, from(number as u16), said.as_bytes(), false);
            let busy = matches!(admission, Admission::Busy);
            assert_eq!(busy, number == admission::MOST_CHECKS_OF_ONE, "{number}");
        }
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let admission = users.admit(ID, elsewhere, b"a:one", false);
        assert!(matches!(admission, Admission::Later));
    }
}

#[test]
fn a_list_under_way_ends_where_its_reader_may_not_have_the_rest() {
    let user = |rights: &str| {
        let text = entry("a", "secret = \"1\"", "k") + &format!("rights = [{rights}]\n");
        Arc::new(users_of(&text).remove(0))
    };
    let engine = Engine::new(EngineSettings::default(), 1);
    let tag = Some(Tag::first(7));
    let queue = |key: &str| {
        let key = Key::encode(key.as_bytes()).expect("a key");
        Listing::waiters(key.as_ref(), 9, tag)
    };
    let list = || Listing::locks(Prefix::of_spelling(b"k"), None, 9, tag, None);
    let (no_look, no_list) = (
        "this user may not look at this key",
        "this user may not list keys",
    );
    for (mut listing, rights, last) in [
        (queue("k"), "\"inspect\"", "W k 0 #7\n".to_owned()),
        (
            queue("k"),
            "\"list\"",
            format!("E W k denied #7 {no_look}\n"),
        ),
        (
            queue("o"),
            "\"inspect\"",
            format!("E W o denied #7 {no_look}\n"),
        ),
        (list(), "\"list\"", "L k 0 #7\n".to_owned()),
        (
            list(),
            "\"inspect\"",
            format!("E L k denied #7 {no_list}\n"),
        ),
    ] {
        listing.restrict(&user(rights));
        let (mut counters, mut out) = (Counters::default(), Vec::new());
        while !listing.append(&engine, &mut counters, Time(1), &mut out, 1) {}
        assert_eq!(String::from_utf8_lossy(&out), last);
    }
}
