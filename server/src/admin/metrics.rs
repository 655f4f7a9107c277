//! `/metrics`: the numbers of the node and of the process in the words of Prometheus. Names end in their unit, and in
//! `_total` where they only count up.

use super::process::Figures;
use fairlock::engine::Histogram;
use fairlock::node::{Busiest, Limit, ServerView, Snapshot};
use fairlock::protocol::Role;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The two ways in which the same numbers can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// For those who ask for it, as Prometheus does.
    OpenMetrics,
    /// For everybody else: a browser shows it, and every tool of the last ten years reads it.
    Text,
}

impl Format {
    /// What somebody gets who accepts this.
    pub(super) fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// How the text is to be read.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All metrics as text; nothing if the node does not run.
/// `refused` is how often somebody said a wrong secret to the admin page.
pub(super) fn text(view: &ServerView, format: Format, refused: u64) -> Option<String> {
    let busiest = view.busiest()?;
    let node = view.snapshot()?;
    let process = Figures::read();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Numbers {
        node,
        busiest,
        process,
        refused,
    }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes everything");
    Some(match format {
        Format::OpenMetrics => text,
        Format::Text => without_open_metrics(&text),
    })
}

/// The same in the older format, which names a counter as its sample is named and knows neither units nor an end.
fn without_open_metrics(text: &str) -> String {
    let mut older = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut words = line.splitn(4, ' ');
        let (word, name, rest) = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(word @ ("HELP" | "TYPE")), Some(name), Some(rest)) => {
                (word, name, rest)
            }
            (Some("#"), ..) => continue,
            _ => {
                older.push_str(line);
                older.push('\n');
                continue;
            }
        };
        // The type stands right behind the help.
        let kind = match word {
            "TYPE" => rest,
            _ => lines
                .peek()
                .and_then(|next| next.rsplit(' ').next())
                .unwrap_or_default(),
        };
        let suffix = if kind == "counter" { "_total" } else { "" };
        older.push_str(&format!("# {word} {name}{suffix} {rest}\n"));
    }
    older
}

/// What is shown, all of one moment.
#[derive(Debug)]
struct Numbers {
    node: Snapshot,
    busiest: Busiest,
    process: Figures,
    refused: u64,
}

/// Labels of one sample, and its value.
type Sample<'a, V, const N: usize> = ([(&'static str, &'a str); N], V);

impl Collector for Numbers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut to = Writer(encoder);
        self.role(&mut to)?;
        self.now(&mut to)?;
        self.totals(&mut to)?;
        self.connections(&mut to)?;
        self.times(&mut to)?;
        self.cluster(&mut to)?;
        self.process(&mut to)
    }
}

impl Numbers {
    fn role(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        to.gauges(
            "fairlock_build_info",
            "The version that runs; always 1.",
            [([("version", env!("CARGO_PKG_VERSION"))], 1)],
        )?;
        let roles = [Role::Starting, Role::Standby, Role::Active, Role::Leaving];
        let roles = roles.map(|role| (role.to_string(), u64::from(role == self.node.role)));
        to.gauges(
            "fairlock_role",
            "What the node is: 1 for its role and 0 for the others.",
            roles.iter().map(|(role, is)| ([("role", &**role)], *is)),
        )?;
        to.gauge(
            "fairlock_ready",
            "1 if clients can be sent to this node: it is active, or a standby with a complete copy.",
            u64::from(self.node.not_ready.is_none()),
        )?;
        to.gauge(
            "fairlock_state_kept",
            "1 if a restart would find the present locks on the disk: they are to be kept, and can be written.",
            u64::from(self.node.keeps_state),
        )?;
        if let Some(end) = self.node.certificate_ends {
            to.one(
                "fairlock_tls_certificate_not_after",
                "When the certificate ends that the node shows, in seconds since 1970.",
                Some(&Unit::Seconds),
                &ConstGauge::new(end),
            )?;
        }
        to.gauge(
            "fairlock_term",
            "The term of the latest fencing tokens that the node knows of.",
            self.node.term.into(),
        )
    }

    fn now(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let stats = &self.node.stats;
        for (name, help, value) in [
            (
                "fairlock_keys_held",
                "Keys that are held. On a standby, those of its copy.",
                stats.held,
            ),
            (
                "fairlock_requests_waiting",
                "Requests that wait for a lock, those included whose connection has just broken. On a standby, those of its copy.",
                stats.waiting,
            ),
            (
                "fairlock_requests_detached",
                "Waiting requests whose connection has broken and whose client may still come back. On a standby, all of its copy.",
                stats.detached,
            ),
            (
                "fairlock_requests_kept_back",
                "Requests that are parked: they wait for a node to become active.",
                self.node.parked,
            ),
            (
                "fairlock_connections_open",
                "Connections of clients that are open.",
                self.node.connections,
            ),
            (
                "fairlock_attempts_remembered",
                "Requests that are over and whose late copies would be recognised.",
                stats.attempts_remembered,
            ),
        ] {
            to.gauge(name, help, value)?;
        }
        let longest = self.busiest.queues.first();
        to.gauge(
            "fairlock_longest_queue_requests",
            "How many wait for the key for which most do. With more than a hundred thousand keys, of those looked at so far.",
            longest.map_or(0, |(_, length)| *length),
        )?;
        let oldest = self.busiest.oldest.first();
        to.one(
            "fairlock_oldest_hold",
            "For how long the lock has been held that is held for longest. With more than a hundred thousand keys, of those looked at so far.",
            Some(&Unit::Seconds),
            &ConstGauge::new(oldest.map_or(0.0, |lock| lock.held_for.as_secs_f64())),
        )
    }

    fn totals(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let (stats, counters) = (&self.node.stats, &self.node.counters);
        to.counters(
            "fairlock_requests",
            "Requests that were answered, by operation and what the answer was.",
            counters.answers().map(|(operation, outcome, count)| {
                let labels = [("operation", operation), ("result", outcome.as_str())];
                (labels, count)
            }),
        )?;
        to.counters(
            "fairlock_refusals",
            "Requests that were refused, by the code of the refusal.",
            counters
                .refusals()
                .map(|(code, count)| ([("code", code.as_str())], count)),
        )?;
        to.counters(
            "fairlock_limits_reached",
            "How often somebody met a limit, by the setting that it stands in.",
            counters
                .limits()
                .map(|(limit, count)| ([("limit", limit.as_str())], count)),
        )?;
        for (name, help, value) in [
            (
                "fairlock_grants",
                "Locks that this node granted.",
                stats.granted,
            ),
            (
                "fairlock_hand_overs",
                "Locks that this node granted to a request that had waited.",
                stats.handed_over,
            ),
            (
                "fairlock_releases",
                "Locks that their holders gave back to this node.",
                stats.released,
            ),
            (
                "fairlock_leases_expired",
                "Locks that this node took back because their lease had ended.",
                stats.expired,
            ),
            (
                "fairlock_grants_undelivered",
                "Locks that were taken back because their holder could not be told.",
                stats.undelivered,
            ),
            (
                "fairlock_late_copies_dropped",
                "Late copies of requests that had gone on or were over.",
                stats.dropped,
            ),
            (
                "fairlock_attempts_forgotten",
                "Requests that were forgotten before their time, because there were too many to remember.",
                stats.attempts_forgotten,
            ),
            (
                "fairlock_requests_parked",
                "Requests that were parked until a node became active.",
                counters.parked,
            ),
            (
                "fairlock_requests_moved",
                "Requests that were sent to the active node.",
                counters.moved,
            ),
            (
                "fairlock_journal_failures",
                "How often the journal could not be written.",
                counters.journal_failures,
            ),
            (
                "fairlock_lines_read",
                "Lines that were read.",
                counters.lines,
            ),
            (
                "fairlock_reads",
                "Reads of sockets that brought something.",
                counters.reads,
            ),
        ] {
            to.counter(name, help, value)?;
        }
        Ok(())
    }

    fn connections(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let counters = &self.node.counters;
        to.counter(
            "fairlock_connections_accepted",
            "Connections that were taken.",
            counters.accepted,
        )?;
        to.counter(
            "fairlock_accept_pauses",
            "How often taking connections paused because the system had nothing left for another one.",
            counters.accept_paused,
        )?;
        to.counter(
            "fairlock_admin_refused",
            "Requests to the admin page with a wrong secret.",
            self.refused,
        )?;
        let cut_off = [
            (
                "unread",
                counters.limit(Limit::Unread) + counters.limit(Limit::UnreadInAll),
            ),
            ("silent", counters.limit(Limit::IdleTimeout)),
            ("no_hello", counters.limit(Limit::HelloTimeout)),
            ("too_long", counters.too_long),
            ("not_admitted", counters.not_admitted),
            ("user_gone", counters.users_gone),
            ("not_secured", counters.not_secured),
            ("handshake", counters.limit(Limit::Handshakes)),
        ];
        to.counters(
            "fairlock_connections_cut_off",
            "Connections that the node ended, by what their client had done or left undone.",
            cut_off.map(|(reason, count)| ([("reason", reason)], count)),
        )
    }

    fn times(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        to.histogram(
            "fairlock_wait",
            "From the reading of an acquire until its grant, those included that were granted at once.",
            &self.node.waits,
            6..=32,
        )?;
        to.histogram(
            "fairlock_hold",
            "From a grant until it was given back or its lease ended.",
            &self.node.holds,
            6..=36,
        )?;
        to.histogram(
            "fairlock_hand_over",
            "From what freed a lock, as the node read or noticed it, until the grant to the next in line had been given to its socket.",
            &self.node.counters.hand_over,
            1..=22,
        )
    }

    fn cluster(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let peers = || self.node.nodes.iter().filter(|node| !node.own);
        to.gauges(
            "fairlock_peer_up",
            "Whether another node of the cluster lives, as this one sees it.",
            peers().map(|peer| ([("peer", &*peer.address)], u64::from(peer.lives))),
        )?;
        to.gauges(
            "fairlock_peer_complete",
            "Whether another node of the cluster has a complete copy, or is the original.",
            peers().map(|peer| ([("peer", &*peer.address)], u64::from(peer.complete))),
        )?;
        to.gauges(
            "fairlock_replication_lag_changes",
            "On the active node: how many changes a standby has not confirmed yet.",
            peers().filter_map(|peer| Some(([("peer", &*peer.address)], peer.lag?))),
        )
    }

    fn process(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let process = &self.process;
        to.one(
            "process_cpu",
            "Processor time that the process has used.",
            Some(&Unit::Seconds),
            &ConstCounter::new(process.cpu_seconds),
        )?;
        to.one(
            "process_start_time",
            "When the node was started, in seconds since 1970.",
            Some(&Unit::Seconds),
            &ConstGauge::new(started(self.node.up).as_millis() as f64 / 1e3),
        )?;
        for (name, help, unit, value) in [
            (
                "process_resident_memory",
                "Memory that the process has in use.",
                Some(&Unit::Bytes),
                process.resident_bytes,
            ),
            (
                "process_virtual_memory",
                "Memory that the process has asked for.",
                Some(&Unit::Bytes),
                process.virtual_bytes,
            ),
            (
                "process_open_fds",
                "Descriptors that are open.",
                None,
                process.open_descriptors,
            ),
            (
                "process_max_fds",
                "Descriptors that may be open.",
                None,
                process.most_descriptors,
            ),
        ] {
            if let Some(value) = value {
                to.one(name, help, unit, &ConstGauge::new(value))?;
            }
        }
        Ok(())
    }
}

/// When a node was started that has run for so long, since 1970. Worked out once: what moved by a millisecond from one
/// look to the next would count as a restart each time.
fn started(up: Duration) -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().saturating_sub(up)
    })
}

/// Writes whole families, each with its help.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn one(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> Result<(), Error> {
        let encoder = self
            .0
            .encode_descriptor(name, help, unit, metric.metric_type())?;
        metric.encode(encoder)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.one(name, help, None, &ConstGauge::new(value))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.one(name, help, None, &ConstCounter::new(value))
    }

    fn gauges<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'a, u64, N>>,
    ) -> Result<(), Error> {
        self.family(name, help, MetricType::Gauge, samples, ConstGauge::new)
    }

    fn counters<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'a, u64, N>>,
    ) -> Result<(), Error> {
        self.family(name, help, MetricType::Counter, samples, ConstCounter::new)
    }

    fn family<'a, M: EncodeMetric, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = Sample<'a, u64, N>>,
        metric: impl Fn(u64) -> M,
    ) -> Result<(), Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in samples {
            metric(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Times in seconds. Steps that are outside of `powers` of two of a microsecond join their neighbours.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        times: &Histogram,
        powers: std::ops::RangeInclusive<u32>,
    ) -> Result<(), Error> {
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        let mut below = 0;
        for (power, count) in times.steps() {
            below += count;
            if powers.contains(&power) {
                let end = 2_f64.powi(power.cast_signed()) / 1e6;
                buckets.push((end, std::mem::take(&mut below)));
            }
        }
        buckets.push((f64::INFINITY, below));
        let mut encoder =
            self.0
                .encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        encoder.encode_histogram::<NoLabelSet>(times.sum(), times.count(), &buckets, None)
    }
}
