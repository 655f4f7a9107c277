//! The users file: TOML with a `[[user]]` for each. What is wrong with it is told with its line, and never with a secret.

use super::hash::Hash;
use super::{Proof, Right, Rights, User};
use crate::node::error::ServerError;
use crate::node::secret_file::warn_if_open;
use crate::node::settings::Secret;
use crate::protocol::{Key, limits};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longer files are something else.
const LONGEST: u64 = 4 << 20;
/// The longest name of a user.
const NAME_BYTES: usize = 128;

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
struct Flaw {
    /// How many bytes stand before it.
    at: usize,
    problem: String,
}

type Value<'a> = Spanned<DeValue<'a>>;

/// The users in a file. `server` is the secret that may do everything, and so nobody else's.
pub(super) fn read(path: &Path, server: Option<&Secret>) -> Result<Vec<User>, ServerError> {
    let broken = |line: Option<usize>, problem: String| ServerError::UsersFile {
        path: path.to_owned(),
        line,
        problem,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| broken(None, error.to_string()))?;
    warn_if_open("users file", path, &file);
    file.take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| broken(None, error.to_string()))?;
    if text.len() as u64 > LONGEST {
        return Err(broken(None, "it is too long for a users file".to_owned()));
    }
    parse(&text, server).map_err(|flaw| {
        let before = &text.as_bytes()[..flaw.at.min(text.len())];
        let line = 1 + memchr::memchr_iter(b'\n', before).count();
        broken(Some(line), flaw.problem)
    })
}

fn parse(text: &str, server: Option<&Secret>) -> Result<Vec<User>, Flaw> {
    let table = DeTable::parse(text).map_err(|error| Flaw {
        at: error.span().map_or(0, |span| span.start),
        problem: error.message().to_owned(),
    })?;
    let mut users = Vec::new();
    let mut seen = Seen::default();
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        if key.get_ref() != "user" {
            return Err(flaw(
                at,
                format!("there is no {} here, only [[user]]", key.get_ref()),
            ));
        }
        let entries = value.get_ref().as_array();
        let entries = entries.ok_or_else(|| flaw(at, "each user begins with [[user]]"))?;
        for entry in entries.iter() {
            let table = entry.get_ref().as_table();
            let table = table.ok_or_else(|| flaw(at, "each user begins with [[user]]"))?;
            users.push(user(entry.span().start, table, server, &mut seen)?);
        }
    }
    if users.is_empty() {
        return Err(flaw(0, "there is no [[user]] in it"));
    }
    Ok(users)
}

/// What may stand only once.
#[derive(Default)]
struct Seen {
    names: HashSet<String>,
    /// Secrets and hashes, with the names of their users.
    proofs: HashMap<Vec<u8>, String>,
}

fn user(
    at: usize,
    table: &DeTable<'_>,
    server: Option<&Secret>,
    seen: &mut Seen,
) -> Result<User, Flaw> {
    let (mut name, mut secret, mut hash, mut keys, mut rights) = (None, None, None, None, None);
    for (key, value) in table {
        let place = match &**key.get_ref() {
            "name" => &mut name,
            "secret" => &mut secret,
            "secret_hash" => &mut hash,
            "keys" => &mut keys,
            "rights" => &mut rights,
            other => {
                return Err(flaw(
                    key.span().start,
                    format!(
                        "a user has no {other}; it has name, secret or secret_hash, keys, rights"
                    ),
                ));
            }
        };
        *place = Some(value);
    }
    let name_at = name.map_or(at, |name| name.span().start);
    let name = name_of(at, name)?;
    if !seen.names.insert(name.to_owned()) {
        return Err(flaw(name_at, format!("there is a user {name} already")));
    }
    let of = |problem: &str| format!("user {name}: {problem}");
    let (value, proof) = match (secret, hash) {
        (Some(value), None) => (
            value,
            secret_of(name, value).map_err(|problem| of(&problem)),
        ),
        (None, Some(value)) => (value, hash_of(value).map_err(|problem| of(&problem))),
        (Some(_), Some(value)) => {
            let problem = of("it has both secret and secret_hash; leave one of the two away");
            (value, Err(problem))
        }
        (None, None) => {
            let problem = "it has neither secret nor secret_hash; `fairlock hash-secret` makes the second of the first";
            return Err(flaw(name_at, of(problem)));
        }
    };
    let proof_at = value.span().start;
    let proof = proof.map_err(|problem| flaw(proof_at, problem))?;
    if let Proof::Secret(secret) = &proof {
        let said = [name.as_bytes(), b":", secret.bytes()].concat();
        if server.is_some_and(|server| server.matches(&said)) {
            return Err(flaw(
                proof_at,
                of("with its name before it that is the `secret` of the server"),
            ));
        }
    }
    let text = value
        .get_ref()
        .as_str()
        .unwrap_or_default()
        .as_bytes()
        .to_vec();
    if let Some(other) = seen.proofs.insert(text, name.to_owned()) {
        return Err(flaw(
            proof_at,
            of(&format!("it has the secret of user {other}")),
        ));
    }
    let keys = keys.ok_or_else(|| {
        flaw(
            name_at,
            of("say which keys it may touch, by what they begin with: keys = [\"order:\"]; [\"\"] stands for all keys"),
        )
    })?;
    let mut prefixes = Vec::new();
    let mut every_key = false;
    each_text(keys, |place, prefix| {
        if prefix.is_empty() {
            every_key = true;
            return Ok(());
        }
        if prefix.contains('*') {
            tracing::warn!(
                "users file: user {name}: keys are what the keys begin with, and in {prefix:?} `*` is an ordinary character"
            );
        }
        let key = Key::encode(prefix.as_bytes());
        let key = key.map_err(|_| flaw(place, of("no key is longer than 512 bytes")))?;
        prefixes.push(key);
        Ok(())
    })
    .map_err(|wrong| wrong.or(|| of("keys must be a list of texts, such as [\"order:\"]")))?;
    let mut may = Rights::default();
    match rights {
        None => may.add(Right::Lock),
        Some(rights) => each_text(rights, |place, word| {
            let right = Right::ALL.into_iter().find(|right| right.word() == word);
            may.add(right.ok_or_else(|| {
                flaw(
                    place,
                    of(&format!("there is no right {word}; there are {}", words())),
                )
            })?);
            Ok(())
        })
        .map_err(|wrong| {
            wrong.or(|| of(&format!("rights must be a list of some of {}", words())))
        })?,
    }
    Ok(User {
        name: name.to_owned(),
        proof,
        prefixes: prefixes.into(),
        every_key,
        rights: may,
        retired: AtomicBool::new(false),
    })
}

fn name_of<'a>(at: usize, value: Option<&'a Value<'_>>) -> Result<&'a str, Flaw> {
    let value = value.ok_or_else(|| flaw(at, "this user has no name"))?;
    let name = value.get_ref().as_str().filter(|name| {
        let plain = |letter: char| letter != ':' && !letter.is_control();
        (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(plain)
    });
    name.ok_or_else(|| {
        let expected = format!("a name is a text of 1 to {NAME_BYTES} bytes without a colon");
        flaw(value.span().start, expected)
    })
}

fn secret_of(name: &str, value: &Value<'_>) -> Result<Proof, String> {
    let most = limits::SECRET_BYTES - name.len() - 1;
    match value.get_ref().as_str() {
        Some(secret) if (1..=most).contains(&secret.len()) => {
            Ok(Proof::Secret(Secret::new(secret)))
        }
        _ => Err(format!("its secret must be a text of 1 to {most} bytes")),
    }
}

fn hash_of(value: &Value<'_>) -> Result<Proof, String> {
    let text = value.get_ref().as_str().unwrap_or_default();
    let hash = Hash::parse(text).map_err(|problem| format!("its secret_hash {problem}"))?;
    Ok(Proof::Hash(Arc::new(hash)))
}

/// What is wrong with a list.
enum Wrong {
    /// One of its texts.
    Text(Flaw),
    /// It is no list of texts; where.
    Form(usize),
}

impl Wrong {
    fn or(self, problem: impl FnOnce() -> String) -> Flaw {
        match self {
            Wrong::Text(flaw) => flaw,
            Wrong::Form(at) => flaw(at, problem()),
        }
    }
}

fn each_text(
    value: &Value<'_>,
    mut take: impl FnMut(usize, &str) -> Result<(), Flaw>,
) -> Result<(), Wrong> {
    let at = value.span().start;
    let list = value.get_ref().as_array().ok_or(Wrong::Form(at))?;
    for item in list.iter() {
        let at = item.span().start;
        let text = item.get_ref().as_str().ok_or(Wrong::Form(at))?;
        take(at, text).map_err(Wrong::Text)?;
    }
    Ok(())
}

fn words() -> String {
    Right::ALL.map(Right::word).join(", ")
}

fn flaw(at: usize, problem: impl Into<String>) -> Flaw {
    Flaw {
        at,
        problem: problem.into(),
    }
}

#[cfg(test)]
pub(super) fn users_of(text: &str) -> Vec<User> {
    parse(text, None).expect("the text is right")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_who_which_keys_and_what_may_be_done() {
        let users = users_of(
            "[[user]]\nname = \"ci\"\nsecret = \"x\"\nkeys = [\"ci:\", \"a b\"]\n\
             [[user]]\nname = \"all\"\nsecret = \"y\"\nkeys = [\"\"]\n\
             rights = [\"lock\", \"inspect\", \"list\", \"release_others\"]\n",
        );
        let key = |text: &str| Key::encode(text.as_bytes()).expect("a key");
        let [ci, all] = &users[..] else {
            panic!("{users:?}");
        };
        for (text, right, may) in [
            ("ci:1", Right::Lock, true),
            ("ci:", Right::Lock, true),
            ("ci", Right::Lock, false),
            ("a b%", Right::Lock, true),
            ("a", Right::Lock, false),
            ("a%20b", Right::Lock, false),
            ("ci:1", Right::Inspect, false),
            ("ci:1", Right::ReleaseOthers, false),
        ] {
            assert_eq!(ci.may(right, key(text).as_ref()), may, "{text} {right:?}");
        }
        assert!(!ci.may_everything() && all.may_everything());
        assert!(all.may(Right::List, key("x").as_ref()));
        let shown = format!("{users:?}");
        assert!(
            !shown.contains("\"x\"") && !shown.contains("\"y\""),
            "{shown}"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_never_with_a_secret() {
        let hash =
            "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let good = "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nkeys = [\"a\"]\n";
        let hashed = format!("[[user]]\nname = \"h\"\nsecret_hash = \"{hash}\"\nkeys = []\n");
        let twice = format!("{hashed}{}", hashed.replace("\"h\"", "\"i\""));
        let cases: &[(&str, usize, &str)] = &[
            ("", 1, "no [[user]]"),
            ("user = 5", 1, "[[user]]"),
            ("user = [5]", 1, "[[user]]"),
            ("[user]\nname = \"a\"", 1, "[[user]]"),
            ("\n[[users]]\nname = \"a\"", 2, "there is no users here"),
            ("[[user]]\nname = \"a\"\nsecret = \"sesame", 3, ""),
            ("[[user]]\nname = \"a\"\nsecret = sesame", 3, ""),
            ("[[user]]\nsecret = \"sesame\"\nkeys = [\"\"]", 1, "no name"),
            ("[[user]]\nname = \"a:b\"", 2, "without a colon"),
            ("[[user]]\nname = \"\"", 2, "1 to 128"),
            ("[[user]]\nname = 5", 2, "a name is a text"),
            ("[[user]]\nname = \"a\"\nkeys = []", 2, "neither secret"),
            (
                "[[user]]\nname = \"a\"\nsecret = \"\"\nkeys = []",
                3,
                "1 to 510",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = 5\nkeys = []",
                3,
                "must be a text",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret_hash = \"sesame\"",
                3,
                "Argon2",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nsecret_hash = \"x\"",
                4,
                "both",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"",
                2,
                "which keys",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nkeys = \"a\"",
                4,
                "list of texts",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nkeys = [\n5]",
                5,
                "list of texts",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nkeys = []\nrights = [\"fly\"]",
                5,
                "there is no right fly",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nkeys = []\nrights = true",
                5,
                "list of some of lock",
            ),
            (
                "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nprefixes = []",
                4,
                "a user has no prefixes",
            ),
            (&format!("{good}{good}"), 6, "there is a user a already"),
            (
                &format!("{good}{}", good.replace("\"a\"", "\"b\"")),
                7,
                "user b: it has the secret of user a",
            ),
            (&twice, 7, "user i: it has the secret of user h"),
            (
                &good.replace("sesame", "server"),
                3,
                "`secret` of the server",
            ),
        ];
        let server = Secret::new("a:server");
        for (text, line, words) in cases {
            let flaw = parse(text, Some(&server)).expect_err(text);
            let before = &text.as_bytes()[..flaw.at.min(text.len())];
            let found = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(
                (found, flaw.problem.contains(words)),
                (*line, true),
                "{text}: {flaw:?}"
            );
            assert!(
                !flaw.problem.contains("sesame") && !flaw.problem.contains(hash),
                "{flaw:?}"
            );
        }
    }
}
