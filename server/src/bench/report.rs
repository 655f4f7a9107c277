//! What a load has found out, as a table and as JSON.

use super::load::News;
use super::machine::Noise;
use super::workload::{Kind, Workload};
use crate::text::Table;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// What one workload has found out.
pub(super) struct Figures {
    pub(super) time: Duration,
    /// Locks taken and given back.
    pub(super) pairs: u64,
    /// How often each worker has had the hot key.
    pub(super) grants: Vec<u64>,
    pub(super) interrupted: bool,
    /// Bytes of the server's memory for each key or waiting request.
    pub(super) bytes_each: Option<f64>,
    pub(super) noise: Noise,
    /// A buffer that the load uses again and again.
    pub(super) news: Vec<News>,
    /// Nanoseconds.
    latency: Histogram<u64>,
}

impl Figures {
    pub(super) fn new() -> Figures {
        let minute = 60_000_000_000;
        Figures {
            time: Duration::ZERO,
            pairs: 0,
            grants: Vec::new(),
            interrupted: false,
            bytes_each: None,
            noise: Noise::default(),
            news: Vec::new(),
            latency: Histogram::new_with_bounds(1, minute, 3).expect("these bounds are allowed"),
        }
    }

    pub(super) fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanos);
    }
}

#[derive(Serialize)]
struct Report<'a> {
    server: &'a str,
    interrupted: bool,
    workloads: Vec<Row>,
}

/// One workload's line. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// What the latency is of.
    latency_of: &'static str,
    connections: u32,
    depth: u32,
    seconds: f64,
    pairs: u64,
    pairs_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<Latency>,
    /// Of the server's memory, for each key or waiting request.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_each: Option<f64>,
    noise: NoiseRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness: Option<Fairness>,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// What else the machine did meanwhile, in percent of one core, and how far the fifths of the run lie
/// apart, in percent of the middle one.
#[derive(Serialize)]
struct NoiseRow {
    trustworthy: bool,
    reasons: Vec<String>,
    others_percent: Option<f64>,
    stolen_percent: Option<f64>,
    spread_percent: Option<f64>,
}

impl NoiseRow {
    fn new(noise: &Noise) -> NoiseRow {
        let percent = |share: Option<f64>| share.map(|share| (share * 1000.0).round() / 10.0);
        let reasons = noise.reasons();
        NoiseRow {
            trustworthy: reasons.is_empty(),
            reasons,
            others_percent: percent(noise.others),
            stolen_percent: percent(noise.stolen),
            spread_percent: percent(noise.spread),
        }
    }
}

/// How evenly the hot key went round.
#[derive(Serialize)]
struct Fairness {
    workers: usize,
    least_grants: u64,
    most_grants: u64,
}

impl Row {
    fn new(workload: &Workload, figures: &Figures) -> Row {
        let seconds = figures.time.as_secs_f64();
        let micros = |quantile| figures.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let fairness = figures.grants.iter().min().zip(figures.grants.iter().max());
        Row {
            name: workload.name,
            latency_of: match workload.kind {
                Kind::OwnKeys | Kind::Held => "request",
                Kind::HotKey | Kind::Queue => "hand-over",
                Kind::Expiry => "lateness",
            },
            connections: workload.connections,
            depth: workload.depth,
            seconds,
            pairs: figures.pairs,
            pairs_per_second: (figures.pairs as f64 / seconds.max(1e-9)).round(),
            latency_us: (!figures.latency.is_empty()).then(|| Latency {
                p50: micros(0.5),
                p90: micros(0.9),
                p99: micros(0.99),
                p999: micros(0.999),
                max: figures.latency.max() as f64 / 1000.0,
            }),
            bytes_each: figures.bytes_each.map(f64::round),
            noise: NoiseRow::new(&figures.noise),
            fairness: fairness.map(|(least, most)| Fairness {
                workers: figures.grants.len(),
                least_grants: *least,
                most_grants: *most,
            }),
        }
    }
}

/// Prints all workloads as one JSON object.
pub(super) fn json(
    out: &mut impl Write,
    server: &str,
    all: &[(&Workload, Figures)],
) -> io::Result<()> {
    let report = Report {
        server,
        interrupted: all.iter().any(|(_, figures)| figures.interrupted),
        workloads: rows(all),
    };
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

/// Prints all workloads as a table.
pub(super) fn table(out: &mut impl Write, all: &[(&Workload, Figures)]) -> io::Result<()> {
    let mut table = Table::new([
        "WORKLOAD",
        ">CONNECTIONS",
        ">DEPTH",
        ">PAIRS/S",
        ">P50 µs",
        ">P90",
        ">P99",
        ">P99.9",
        ">MAX",
        "OF",
        "BYTES EACH",
    ]);
    let rows = rows(all);
    for row in &rows {
        let latency = |of: fn(&Latency) -> f64| match &row.latency_us {
            Some(latency) => format!("{:.1}", of(latency)),
            None => "-".to_owned(),
        };
        table.push([
            row.name.to_owned(),
            row.connections.to_string(),
            row.depth.to_string(),
            thousands(row.pairs_per_second as u64),
            latency(|latency| latency.p50),
            latency(|latency| latency.p90),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            latency(|latency| latency.max),
            row.latency_of.to_owned(),
            row.bytes_each
                .map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ]);
    }
    table.write(out)?;
    for fairness in rows.iter().filter_map(|row| row.fairness.as_ref()) {
        writeln!(
            out,
            "the hot key went round {} workers: each had it between {} and {} times",
            fairness.workers,
            thousands(fairness.least_grants),
            thousands(fairness.most_grants)
        )?;
    }
    for row in rows.iter().filter(|row| !row.noise.trustworthy) {
        writeln!(
            out,
            "do not trust the figures of `{}`: {}",
            row.name,
            row.noise.reasons.join(", ")
        )?;
    }
    if all.iter().any(|(_, figures)| figures.interrupted) {
        writeln!(out, "interrupted: the last line is shorter than the others")?;
    }
    Ok(())
}

fn rows(all: &[(&Workload, Figures)]) -> Vec<Row> {
    let rows = all
        .iter()
        .map(|(workload, figures)| Row::new(workload, figures));
    rows.collect()
}

/// A number with a comma every three digits.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_comma_every_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn percentiles_come_from_all_that_was_recorded() {
        let workload = Workload {
            name: "test",
            kind: Kind::HotKey,
            connections: 2,
            depth: 1,
            count: 0,
        };
        let mut figures = Figures::new();
        for micros in 1..=1000 {
            figures.record(Duration::from_micros(micros));
        }
        figures.pairs = 1000;
        figures.time = Duration::from_millis(500);
        figures.grants = vec![499, 501];
        let row = Row::new(&workload, &figures);
        let latency = row.latency_us.as_ref().expect("some were recorded");
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.002;
        assert!(near(latency.p50, 500.0), "{}", latency.p50);
        assert!(near(latency.p99, 990.0), "{}", latency.p99);
        assert!(near(latency.max, 1000.0), "{}", latency.max);
        assert!(
            near(row.pairs_per_second, 2000.0),
            "{}",
            row.pairs_per_second
        );
        let fairness = row.fairness.expect("a hot key has one");
        assert_eq!((fairness.least_grants, fairness.most_grants), (499, 501));
    }
}
