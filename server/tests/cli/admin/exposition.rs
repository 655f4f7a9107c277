//! A strict reader of what Prometheus reads: whatever is not exactly as it should be is a failed test.

use std::collections::{BTreeMap, BTreeSet};

/// One scrape.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub(super) families: BTreeMap<String, Family>,
    /// By name and labels, as they are written.
    pub(super) samples: BTreeMap<String, f64>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Family {
    pub(super) kind: String,
    pub(super) help: String,
    pub(super) unit: String,
    /// The names of its samples.
    series: BTreeSet<String>,
}

impl Scrape {
    pub(super) fn read(text: &str) -> Scrape {
        let mut scrape = Scrape::default();
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        let mut open: Option<String> = None;
        for line in body.lines() {
            assert!(!line.is_empty(), "an empty line");
            match line.strip_prefix("# ") {
                Some(about) => scrape.about(about, &mut open),
                None => scrape.sample(line, open.as_deref()),
            }
        }
        scrape.check();
        scrape
    }

    pub(super) fn value(&self, series: &str) -> f64 {
        let value = self.samples.get(series);
        *value.unwrap_or_else(|| panic!("there is no {series} in {:#?}", self.samples))
    }

    fn about(&mut self, line: &str, open: &mut Option<String>) {
        let (word, rest) = line.split_once(' ').expect("a word");
        let (name, value) = rest.split_once(' ').expect("a name and a value");
        assert!(is_name(name), "{name}");
        if open.as_deref() != Some(name) {
            let before = self.families.insert(name.to_owned(), Family::default());
            assert!(before.is_none(), "{name} is described in two places");
            *open = Some(name.to_owned());
        }
        let family = self.families.get_mut(name).expect("it is there");
        assert!(
            family.series.is_empty(),
            "{name} is described after its samples"
        );
        let place = match word {
            "HELP" => &mut family.help,
            "TYPE" => &mut family.kind,
            "UNIT" => &mut family.unit,
            other => panic!("{other} says nothing"),
        };
        assert!(place.is_empty(), "{name} has two of {word}");
        value.clone_into(place);
    }

    fn sample(&mut self, line: &str, open: Option<&str>) {
        let open = open.expect("a sample comes after its description");
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().unwrap_or_default();
        if let Some(labels) = series
            .strip_prefix(name)
            .filter(|labels| !labels.is_empty())
        {
            check_labels(labels);
        }
        let family = self.families.get_mut(open).expect("it is open");
        let suffix = name
            .strip_prefix(open)
            .unwrap_or_else(|| panic!("{name} among {open}"));
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{open} is a {other}"),
        };
        assert!(allowed.contains(&suffix), "{name} in a {}", family.kind);
        family.series.insert(name.to_owned());
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let before = self.samples.insert(series.to_owned(), value);
        assert!(before.is_none(), "{series} stands there twice");
    }

    fn check(&self) {
        for (name, family) in &self.families {
            assert!(
                family.help.ends_with('.') && family.help.len() > 10,
                "the help of {name}: {}",
                family.help
            );
            assert!(!family.help.ends_with(".."), "the help of {name}");
            if !family.unit.is_empty() {
                assert!(
                    name.ends_with(&format!("_{}", family.unit)),
                    "{name} in {}",
                    family.unit
                );
            }
            let unit = ["_seconds", "_bytes"]
                .into_iter()
                .find(|unit| name.ends_with(unit));
            assert_eq!(unit.map_or("", |unit| &unit[1..]), family.unit, "{name}");
            if family.kind == "histogram" {
                self.check_histogram(name);
            }
        }
    }

    /// Buckets are in order, cumulative, and end with everything.
    fn check_histogram(&self, name: &str) {
        let prefix = format!("{name}_bucket{{le=\"");
        let mut buckets: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter_map(|(series, count)| {
                let end = series.strip_prefix(&prefix)?.strip_suffix("\"}")?;
                let end = if end == "+Inf" {
                    f64::INFINITY
                } else {
                    end.parse().expect("a bound")
                };
                Some((end, *count))
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.len() > 3, "{name} has {} buckets", buckets.len());
        assert!(
            buckets
                .windows(2)
                .all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1),
            "{name}: {buckets:?}"
        );
        let (end, all) = buckets[buckets.len() - 1];
        assert_eq!(
            (end, all),
            (f64::INFINITY, self.value(&format!("{name}_count"))),
            "{name}"
        );
        self.value(&format!("{name}_sum"));
    }

    /// What only counts up has only counted up, and nothing has gone or become something else.
    pub(super) fn follows(&self, earlier: &Scrape) {
        for (name, before) in &earlier.families {
            let now = &self.families[name];
            assert_eq!(
                (&now.kind, &now.unit),
                (&before.kind, &before.unit),
                "{name}"
            );
            if now.kind == "gauge" {
                continue;
            }
            for series in &before.series {
                for (sample, value) in earlier.samples.range(series.clone()..) {
                    if !sample.starts_with(series.as_str()) {
                        break;
                    }
                    assert!(self.value(sample) >= *value, "{sample} was {value}");
                }
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let letters = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    letters && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// `{name="value",…}`
fn check_labels(labels: &str) {
    let mut rest = labels.strip_prefix('{').expect("labels begin so");
    loop {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        assert!(is_name(name), "{labels}");
        let mut end = None;
        let mut escaped = false;
        for (at, letter) in after.char_indices() {
            match letter {
                _ if escaped => {
                    assert!(matches!(letter, 'n' | '\\' | '"'), "{labels}");
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        rest = &after[end.unwrap_or_else(|| panic!("{labels}")) + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return assert_eq!(rest, "}", "{labels}"),
        }
    }
}

#[test]
fn the_reader_sees_what_is_wrong() {
    let right = "# HELP a_seconds How long it took.\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds{b=\"c\\\"\"} 1\n# EOF\n";
    Scrape::read(right);
    for (what, wrong) in [
        ("# EOF\n", ""),
        ("# HELP a_seconds How long it took.\n", ""),
        ("# UNIT a_seconds seconds\n", ""),
        (" gauge", " counter"),
        ("} 1\n", "} 1\na_seconds{b=\"c\\\"\"} 1\n"),
        ("} 1", "} NaN"),
        ("c\\\"", "c\""),
        ("a_seconds{", "other{"),
    ] {
        let text = right.replacen(what, wrong, 1);
        assert_ne!(text, right);
        assert!(
            std::panic::catch_unwind(|| Scrape::read(&text)).is_err(),
            "{text}"
        );
    }
}
