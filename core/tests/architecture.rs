//! Reads the sources and fails on what the architecture forbids and the compiler lets pass: a module
//! that uses one it must not know, and a clock, a random number, a thread, a socket, a file, async
//! code or the iteration of a `HashMap` (whose order no seed repeats) where all that has to come in as an argument.
//!
//! It reads tokens, not types: comments, strings and test modules are passed over, `crate::…` and
//! `super::…` paths are resolved by the place of the file.

use std::fs;
use std::path::{Path, PathBuf};

/// Each part of the crate and what of the crate it may use (itself always).
const MAY_USE: [(&str, &[&str]); 10] = [
    ("background", &[]),
    ("mutation", &[]),
    ("protocol", &[]),
    ("stamps", &[]),
    ("tls", &["stamps"]),
    ("engine", &["protocol", "mutation"]),
    ("cluster", &["protocol", "engine", "mutation"]),
    (
        "node",
        &[
            "background",
            "protocol",
            "engine",
            "cluster",
            "tls",
            "stamps",
        ],
    ),
    ("client", &["background", "protocol", "mutation", "tls"]),
    ("fence", &["protocol"]),
];

/// Where everything comes in as an argument and goes out as an effect.
const PURE: [&str; 4] = ["protocol", "engine", "cluster", "client/session"];

/// What a pure file must not name at all.
const IMPURE_WORDS: [&str; 17] = [
    "tokio",
    "mio",
    "socket2",
    "libc",
    "rand",
    "getrandom",
    "fastrand",
    "Instant",
    "SystemTime",
    "RandomState",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "Mutex",
    "Condvar",
    "async",
    "thread_local",
];

/// What a pure file must not name of `std`.
const IMPURE_STD: [&str; 7] = ["net", "fs", "io", "thread", "process", "env", "os"];

/// Methods that visit the entries of a map or set in its own order.
const VISITS: [&str; 12] = [
    "iter",
    "iter_mut",
    "into_iter",
    "keys",
    "values",
    "values_mut",
    "into_keys",
    "into_values",
    "drain",
    "retain",
    "extract_if",
    "union",
];

#[test]
fn no_part_uses_what_it_must_not_know() {
    let faults: Vec<String> = sources()
        .iter()
        .flat_map(|(place, text)| wrong_arrows(place, text))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn pure_parts_get_time_chance_and_the_world_as_arguments() {
    let faults: Vec<String> = sources()
        .iter()
        .filter(|(place, _)| is_pure(place))
        .flat_map(|(place, text)| impurities(place, text))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn nothing_that_ships_uses_bindings_examples_or_tests() {
    let root = root();
    let manifests = [root.join("core/Cargo.toml"), root.join("server/Cargo.toml")];
    for manifest in manifests {
        let text = fs::read_to_string(&manifest).expect("the manifest is there");
        for folder in ["bindings", "examples", "tests"] {
            let names_it = text
                .lines()
                .filter(|line| line.contains("path ="))
                .any(|line| line.contains(&format!("/{folder}")));
            assert!(!names_it, "{} uses {folder}/", manifest.display());
        }
    }
}

/// Lines of the log that do not pass the gate of `node::log`: how many a file may have. Each is said once a start or
/// an end, once a change of role or term, or because an operator changed a file; nobody outside can bring one about.
const LINES_WITHOUT_A_GATE: [(&str, usize); 14] = [
    ("node/state.rs", 3),
    ("node/server.rs", 1),
    ("node/run.rs", 6),
    ("node/secret_file.rs", 1),
    ("node/descriptors.rs", 1),
    ("node/cluster/mod.rs", 2),
    ("node/tls.rs", 3),
    ("node/users/watch.rs", 3),
    ("node/users/file.rs", 1),
    // What a disk that fails brings about has a pause of its own there.
    ("node/journal/mod.rs", 3),
    ("node/journal/anew.rs", 1),
    ("node/journal/node.rs", 1),
    ("node/journal/recovery.rs", 1),
    // The gate itself.
    ("node/log.rs", 2),
];

#[test]
fn what_clients_and_peers_can_bring_about_is_logged_through_a_gate() {
    for (place, text) in sources() {
        let lines = ["error", "warn", "info", "debug", "trace", "event", "$level"]
            .map(|level| text.matches(&format!("tracing::{level}!(")).count());
        let known = LINES_WITHOUT_A_GATE.iter().find(|(file, _)| *file == place);
        assert_eq!(
            lines.iter().sum::<usize>(),
            known.map_or(0, |(_, count)| *count),
            "{place}: use now_and_then!, or count the line here if nothing that comes in can bring it about"
        );
    }
}

/// The checks themselves, on sources that are wrong on purpose.
#[test]
fn the_checks_see_what_they_look_for() {
    let arrows = |place, text| wrong_arrows(place, text).len();
    assert_eq!(arrows("engine/lock.rs", "use crate::protocol::Key;"), 0);
    assert_eq!(arrows("engine/lock.rs", "use crate::node::Clock;"), 1);
    assert_eq!(
        arrows("client/mod.rs", "use crate::{protocol, engine::Table};"),
        1
    );
    assert_eq!(
        arrows("protocol/key.rs", "use super::super::engine::Lock;"),
        1
    );
    assert_eq!(arrows("protocol/key.rs", "use super::line::Fields;"), 0);
    assert_eq!(arrows("client/mod.rs", "use super::node;"), 1);
    assert_eq!(arrows("client/session/a.rs", "use super::super::pool;"), 0);
    assert_eq!(
        arrows("engine/lock.rs", "// crate::node::x \n \"crate::node\""),
        0
    );
    assert_eq!(
        arrows(
            "engine/lock.rs",
            "#[cfg(test)] mod t { use crate::node::X; }"
        ),
        0
    );

    let flaws = |text| impurities("engine/lock.rs", text).len();
    assert_eq!(flaws("fn f(now: u64) -> u64 { now }"), 0);
    assert_eq!(flaws("let t = Instant::now();"), 1);
    assert_eq!(flaws("use std::thread;"), 1);
    assert_eq!(flaws("use std::{collections::HashMap, net::TcpStream};"), 2);
    assert_eq!(flaws("use std::{fmt, thread::{self, sleep}};"), 1);
    assert_eq!(
        flaws("struct S { m: HashMap<u8, u8> } fn f(s: S) { s.m.get(&1); }"),
        0
    );
    assert_eq!(
        flaws("struct S { m: HashMap<u8, u8> } fn f(s: S) { s.m.values(); }"),
        1
    );
    assert_eq!(flaws("fn f(m: &HashSet<u8>) { for x in &m {} }"), 1);
    assert_eq!(
        flaws("struct S { m: HashMap<u8, u8> } fn f(s: S) { for x in s.m {} }"),
        1
    );
    assert_eq!(flaws("let m = HashMap::new(); m.retain(|_, _| true);"), 1);
    assert_eq!(flaws("fn f<'a>(x: &'a str) -> char { 'a' } // Instant"), 0);
}

/// A fault for each path in this file that leads to a part it must not know.
fn wrong_arrows(place: &str, text: &str) -> Vec<String> {
    let part = part_of(place);
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == part) else {
        return Vec::new();
    };
    let known = |name: &str| MAY_USE.iter().any(|(part, _)| *part == name);
    paths_from_the_root(place, &tokens(text))
        .into_iter()
        .filter(|used| known(used) && used != part && !allowed.contains(&used.as_str()))
        .map(|used| format!("{place}: {part} must not use {used}"))
        .collect()
}

/// The first names behind `crate::`, or behind as many `super::` as lead there.
fn paths_from_the_root(place: &str, tokens: &[String]) -> Vec<String> {
    let depth = depth_of(place);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut end = at;
        if tokens[at] == "crate" && next_is(tokens, at, "::") {
            end = at + 2;
        } else if tokens[at] == "super" {
            let mut steps = 0;
            while tokens.get(end).is_some_and(|token| token == "super")
                && next_is(tokens, end, "::")
            {
                steps += 1;
                end += 2;
            }
            if steps < depth {
                at = end.max(at + 1);
                continue;
            }
        }
        if end > at {
            found.extend(first_names(tokens, end));
        }
        at = end.max(at + 1);
    }
    found
}

/// The name at `at`, or the first name of each member of the group that begins there.
fn first_names(tokens: &[String], at: usize) -> Vec<String> {
    let Some(first) = tokens.get(at) else {
        return Vec::new();
    };
    if first != "{" {
        return vec![first.clone()];
    }
    let mut names = Vec::new();
    let mut open = 1;
    let mut member_begins = true;
    for token in &tokens[at + 1..] {
        match token.as_str() {
            "{" => open += 1,
            "}" => open -= 1,
            "," if open == 1 => {
                member_begins = true;
                continue;
            }
            name if member_begins => names.push(name.to_owned()),
            _ => {}
        }
        member_begins = false;
        if open == 0 {
            break;
        }
    }
    names
}

/// A fault for each forbidden word, each forbidden part of `std` and each visit of a map.
fn impurities(place: &str, text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let mut faults: Vec<String> = tokens
        .iter()
        .filter(|token| IMPURE_WORDS.contains(&token.as_str()))
        .map(|word| format!("{place}: names {word}"))
        .collect();
    for at in 0..tokens.len() {
        if tokens[at] == "std" && next_is(&tokens, at, "::") {
            for name in first_names(&tokens, at + 2) {
                if IMPURE_STD.contains(&name.as_str()) {
                    faults.push(format!("{place}: uses std::{name}"));
                }
            }
        }
    }
    let maps = map_names(&tokens);
    for at in 0..tokens.len() {
        if !maps.contains(&tokens[at]) {
            continue;
        }
        let visited = next_is(&tokens, at, ".")
            && tokens
                .get(at + 2)
                .is_some_and(|method| VISITS.contains(&method.as_str()));
        if visited || is_looped_over(&tokens, at) {
            faults.push(format!(
                "{place}: visits the entries of the map {}",
                tokens[at]
            ));
        }
    }
    faults
}

/// The names of fields, arguments and variables that hold a `HashMap` or `HashSet`.
fn map_names(tokens: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at] != "HashMap" && tokens[at] != "HashSet" {
            continue;
        }
        // Back over `std::collections::`, references and `mut` to the `:` or `=` behind the name.
        let mut before = at;
        while before > 0
            && ["std", "collections", "::", "&", "mut"].contains(&tokens[before - 1].as_str())
        {
            before -= 1;
        }
        if before >= 2 && (tokens[before - 1] == ":" || tokens[before - 1] == "=") {
            names.push(tokens[before - 2].clone());
        }
    }
    names
}

/// Whether the name at `at` ends the expression of a `for … in … {`.
fn is_looped_over(tokens: &[String], at: usize) -> bool {
    let mut before = at;
    while before > 0 {
        match tokens[before - 1].as_str() {
            "in" => return next_is(tokens, at, "{"),
            "&" | "mut" | "." | "self" => before -= 1,
            _ if tokens[before] == "." => before -= 1,
            _ => return false,
        }
    }
    false
}

fn next_is(tokens: &[String], at: usize, what: &str) -> bool {
    tokens.get(at + 1).is_some_and(|token| token == what)
}

/// The words and signs of a source, without comments, strings and test modules. `::` is one sign.
fn tokens(text: &str) -> Vec<String> {
    without_test_modules(lex(text))
}

fn lex(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = string_length(rest) {
            length
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            let word = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(rest.len());
            if word > 0 {
                tokens.push(rest[..word].to_owned());
                word
            } else {
                let sign = rest.chars().next().expect("the rest is not empty");
                if !sign.is_whitespace() {
                    tokens.push(sign.to_string());
                }
                sign.len_utf8()
            }
        };
    }
    tokens
}

/// How long the string or character is that `rest` begins with, if it begins with one.
fn string_length(rest: &str) -> Option<usize> {
    let plain = rest
        .strip_prefix("br")
        .or_else(|| rest.strip_prefix('r'))
        .filter(|after| after.starts_with(['"', '#']));
    if let Some(raw) = plain {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let begin = rest.len() - raw.len() + hashes + 1;
            let end = rest[begin..].find(&close).unwrap_or(rest.len() - begin);
            return Some((begin + end + close.len()).min(rest.len()));
        }
        return None;
    }
    let prefix = usize::from(rest.starts_with("b\"") || rest.starts_with("b'"));
    let quote = *rest.as_bytes().get(prefix)?;
    if quote == b'\'' {
        // A lifetime has no closing quote behind one character.
        let mut inner = rest[prefix + 1..].chars();
        let first = inner.next()?;
        if first != '\\' && inner.next() != Some('\'') {
            return None;
        }
    } else if quote != b'"' {
        return None;
    }
    let mut escaped = false;
    for (offset, byte) in rest.bytes().enumerate().skip(prefix + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            byte if byte == quote => return Some(offset + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Drops `#[cfg(test)]` and the item behind it.
fn without_test_modules(tokens: Vec<String>) -> Vec<String> {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let marked = tokens[at..].len() >= marker.len()
            && marker
                .iter()
                .zip(&tokens[at..])
                .all(|(want, have)| want == have);
        if !marked {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut open = 0;
        while at < tokens.len() {
            match tokens[at].as_str() {
                "{" => open += 1,
                "}" => open -= 1,
                _ => {}
            }
            at += 1;
            let last = &tokens[at - 1];
            if (last == "}" || last == ";") && open == 0 {
                break;
            }
        }
    }
    kept
}

/// The part of the crate that a file belongs to: its first folder, or its own name.
fn part_of(place: &str) -> &str {
    place
        .split('/')
        .next()
        .unwrap_or(place)
        .trim_end_matches(".rs")
}

/// How many `super::` lead from a file to the root of the crate.
fn depth_of(place: &str) -> usize {
    place.matches('/').count() + usize::from(!place.ends_with("mod.rs"))
}

fn is_pure(place: &str) -> bool {
    PURE.iter().any(|prefix| {
        place
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(['/', '.', '_']))
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("core lies in the workspace")
        .to_owned()
}

/// Every source of the crate that is not a test: its place below `src`, and its text.
fn sources() -> Vec<(String, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let place = path
                    .strip_prefix(&source)
                    .expect("it lies below")
                    .to_string_lossy();
                let text = fs::read_to_string(&path).expect("a source is UTF-8");
                found.push((place.into_owned(), text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 5, "the sources are where this test looks");
    found
}
