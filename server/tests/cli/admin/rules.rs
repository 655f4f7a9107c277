//! What operators are told to look at is there: every series that docs/operations.md and the alert rules name is in a real scrape.

use super::{Scrape, Watched};

/// Names of series with their labels, as `(name, [(label, operator, value)])`.
type Named<'a> = (&'a str, Vec<(&'a str, &'a str, &'a str)>);

/// All series that a text names: what begins with `fairlock_` or `process_` and is no part of a path.
fn series(text: &str) -> Vec<Named<'_>> {
    let mut found = Vec::new();
    let is_part =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    for begin in ["fairlock_", "process_"] {
        for (at, _) in text.match_indices(begin) {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            if is_part(before) || "/-.".contains(before) {
                continue;
            }
            let rest = &text[at..];
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let labels = labels.map_or(Vec::new(), |(labels, _)| {
                labels.split(',').map(|one| label(one.trim())).collect()
            });
            found.push((name, labels));
        }
    }
    found
}

/// `name="value"`, with any of the four operators.
fn label(text: &str) -> (&str, &str, &str) {
    let at = text.find(['=', '!']).unwrap_or_else(|| panic!("{text}"));
    let (name, rest) = text.split_at(at);
    let operator = rest.split('"').next().unwrap_or_default();
    (name, operator, rest[operator.len()..].trim_matches('"'))
}

/// Whether a scrape has it. Labels of the scraper are not looked at.
fn has(scrape: &Scrape, (name, labels): &Named<'_>) -> bool {
    let families = &scrape.families;
    let is_there = ["", "_total", "_bucket", "_sum", "_count"]
        .iter()
        .any(|suffix| {
            let family = name
                .strip_suffix(suffix)
                .and_then(|name| families.get(name));
            family.is_some_and(|family| match *suffix {
                "" => family.kind == "gauge",
                "_total" => family.kind == "counter",
                _ => family.kind == "histogram",
            })
        });
    let mut labels = labels
        .iter()
        .filter(|(label, ..)| *label != "job" && *label != "instance");
    is_there
        && labels.all(|(label, operator, values)| {
            let values = values
                .split('|')
                .filter(|_| operator.ends_with('~') || !values.contains('|'));
            let mut values = values.peekable();
            values.peek().is_some()
                && values.all(|value| {
                    let label = format!("{label}=\"{value}\"");
                    let mut samples = scrape.samples.keys();
                    samples.any(|sample| {
                        sample.starts_with(&format!("{name}{{")) && sample.contains(&label)
                    })
                })
        })
}

#[test]
fn every_metric_that_is_named_to_operators_is_in_a_scrape() {
    let watched = Watched::alone();
    // So that there is a sample of what is counted by operation.
    watched.client().takes(b"k");
    let scrape = watched.scrape();
    let rules = include_str!("../../../../packaging/prometheus-rules.yaml");
    let operations = include_str!("../../../../docs/operations.md");
    for (text, least) in [(rules, 20), (operations, 20)] {
        let named = series(text);
        assert!(named.len() >= least, "only {named:?}");
        for one in &named {
            assert!(has(&scrape, one), "there is no {one:?}");
        }
    }
}

/// Goal: each limit of the table is counted as it says, and the table has all that are counted.
#[test]
fn every_limit_that_is_counted_stands_in_the_operations_page() {
    let scrape = Watched::alone().scrape();
    let operations = include_str!("../../../../docs/operations.md");
    let limits = scrape
        .samples
        .keys()
        .filter(|series| series.starts_with("fairlock_limits_reached_total{"));
    let mut count = 0;
    for series in limits {
        assert!(operations.contains(&format!("`{series}`")), "{series}");
        count += 1;
    }
    assert_eq!(count, fairlock::node::Limit::ALL.len());
}

#[test]
fn the_reader_of_names_finds_what_is_not_there() {
    let scrape = Watched::alone().scrape();
    for (text, is_there) in [
        ("sum(fairlock_role{role=\"active\"}) < 1", true),
        (
            "fairlock_limits_reached_total{limit!~\"max_keys|max_waiters\"}",
            true,
        ),
        ("rate(fairlock_wait_seconds_bucket[5m])", true),
        ("fairlock_role{role=\"acting\"}", false),
        (
            "fairlock_limits_reached_total{limit=~\"max_keys|max_locks\"}",
            false,
        ),
        ("fairlock_limits_reached{limit=\"max_keys\"}", false),
        ("fairlock_wait_seconds", false),
        ("process_start_time", false),
    ] {
        let named = series(text);
        assert_eq!(named.len(), 1, "{text}");
        assert_eq!(has(&scrape, &named[0]), is_there, "{text}");
    }
    assert!(series("credentials_file: /etc/prometheus/fairlock_admin_secret").is_empty());
}
