//! What clients have seen, and the rules that it has to keep: behaviour that can be told from outside,
//! whatever the nodes did meanwhile.
//!
//! Faults allow exceptions, and only near them: a grant that no standby had yet when its node was
//! killed is lost, and while nodes do not hear each other two of them may serve. An [`Allowance`] names such a time; what it
//! excuses is counted, not forgotten.

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// A moment in nanoseconds, by a clock that all processes of a machine share.
pub type Moment = u64;

/// The present moment.
#[must_use]
pub fn moment() -> Moment {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}

/// A second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
/// How much later than its rule says a busy machine may show the end of a wait.
const SLACK: u64 = 8 * SECOND;

/// One acquire from its call to the end of what came of it.
#[derive(Clone, Debug, Deserialize)]
pub struct Attempt {
    /// Which client object. Requests of one client that follow each other are read in that order.
    pub client: u64,
    /// What was to be locked.
    pub key: String,
    /// How long it was to wait; 0 without limit, `None` not at all.
    pub wait_ms: Option<u64>,
    /// When the call began.
    pub asked: Moment,
    /// When the request had been handed over, if the caller knows.
    pub sent: Option<Moment>,
    /// When the call ended.
    pub ended: Moment,
    /// What came of it.
    pub outcome: Outcome,
    /// How it was released.
    pub release: Option<Release>,
    /// When and how the lock was lost.
    pub lost: Option<(Moment, String)>,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With this token.
    Granted(u64),
    /// Not within the wait, or not free.
    NotHad,
    /// With an error.
    Failed(String),
}

/// A release.
#[derive(Clone, Debug, Deserialize)]
pub struct Release {
    /// When it was called.
    pub began: Moment,
    /// When it returned.
    pub ended: Moment,
    /// What it returned: whether the lock was still held, or an error.
    pub outcome: Result<bool, String>,
}

impl Attempt {
    fn token(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Granted(token) => Some(token),
            Outcome::NotHad | Outcome::Failed(_) => None,
        }
    }

    /// When the holder stopped to believe that it holds the lock.
    fn let_go(&self) -> Moment {
        let released = self.release.as_ref().map(|release| release.began);
        let lost = self.lost.as_ref().map(|(at, _)| *at);
        released
            .into_iter()
            .chain(lost)
            .min()
            .unwrap_or(Moment::MAX)
    }
}

/// A time in which a fault excuses something.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// From when.
    pub from: Moment,
    /// Until when.
    pub to: Moment,
    /// Whether two nodes may have been active.
    pub two_active: bool,
}

impl Allowance {
    /// A node was killed or frozen at this moment: what it had granted just before may not have been copied.
    #[must_use]
    pub fn crash(at: Moment) -> Allowance {
        Allowance {
            from: at - SECOND,
            to: at + 4 * SECOND,
            two_active: false,
        }
    }

    /// From one moment to another two nodes may have been active.
    #[must_use]
    pub fn cut(from: Moment, to: Moment) -> Allowance {
        Allowance {
            from: from - SECOND,
            to,
            two_active: true,
        }
    }

    fn covers(&self, at: Moment) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// What a history shows.
#[derive(Debug, Default)]
pub struct Report {
    /// Calls in all.
    pub calls: usize,
    /// Of them with a lock.
    pub grants: usize,
    /// Of them without one, in order.
    pub not_had: usize,
    /// What is excused by an allowance, by rule.
    pub excused: BTreeMap<&'static str, usize>,
    /// What nothing excuses.
    pub broken: Vec<String>,
    /// The longest time in which no client got a lock.
    pub longest_gap: u64,
}

impl Report {
    /// Fails the test if a rule was broken, or if there was no load to speak of.
    #[track_caller]
    pub fn expect_clean(&self, least_grants: usize) {
        println!("{self}");
        let broken = &self.broken[..self.broken.len().min(20)];
        assert!(
            broken.is_empty(),
            "{} times, such as\n{}",
            self.broken.len(),
            broken.join("\n")
        );
        assert!(self.grants >= least_grants, "only {} grants", self.grants);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls, {} grants, {} in order without; {} ms without a grant at most; excused: {:?}",
            self.calls,
            self.grants,
            self.not_had,
            self.longest_gap / MILLISECOND,
            self.excused
        )
    }
}

/// Looks whether a history keeps the rules.
#[must_use]
pub fn check(history: &[Attempt], allowances: &[Allowance]) -> Report {
    let mut checker = Checker {
        allowances,
        report: Report {
            calls: history.len(),
            ..Report::default()
        },
    };
    checker.each(history);
    checker.unique(history);
    let mut keys: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in history.iter().filter(|attempt| attempt.token().is_some()) {
        keys.entry(&attempt.key).or_default().push(attempt);
    }
    for grants in keys.values_mut() {
        checker.one_holder(grants);
        checker.rising(grants);
        checker.in_line(grants);
    }
    let mut moments: Vec<Moment> = history
        .iter()
        .filter(|attempt| attempt.token().is_some())
        .map(|attempt| attempt.ended)
        .collect();
    moments.sort_unstable();
    let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
    checker.report.longest_gap = gaps.max().unwrap_or(0);
    checker.report
}

struct Checker<'a> {
    allowances: &'a [Allowance],
    report: Report,
}

impl Checker<'_> {
    fn found(&mut self, rule: &'static str, excused: bool, text: impl FnOnce() -> String) {
        if excused {
            *self.report.excused.entry(rule).or_default() += 1;
        } else {
            self.report.broken.push(format!("{rule}: {}", text()));
        }
    }

    fn near_fault(&self, moments: &[Moment]) -> bool {
        let covers = |allowance: &Allowance| moments.iter().any(|at| allowance.covers(*at));
        self.allowances.iter().any(covers)
    }

    fn two_active(&self, moments: &[Moment]) -> bool {
        let covers = |allowance: &&Allowance| moments.iter().any(|at| allowance.covers(*at));
        self.allowances
            .iter()
            .filter(|allowance| allowance.two_active)
            .any(|allowance| covers(&allowance))
    }

    /// What a single call has to keep.
    fn each(&mut self, history: &[Attempt]) {
        for attempt in history {
            let took = attempt.ended - attempt.asked;
            match &attempt.outcome {
                Outcome::Granted(_) => self.report.grants += 1,
                Outcome::NotHad => self.report.not_had += 1,
                Outcome::Failed(text) => {
                    // A try does not wait for a node that becomes active.
                    let excused = attempt.wait_ms.is_none()
                        && self.near_fault(&[attempt.asked, attempt.ended]);
                    self.found("no error reaches the caller", excused, || {
                        format!("{text}: {attempt:?}")
                    });
                }
            }
            if let Some(wait) = attempt.wait_ms.filter(|wait| *wait > 0) {
                let wait = wait * MILLISECOND;
                if attempt.outcome == Outcome::NotHad && took < wait {
                    self.found("no wait ends early", false, || format!("{attempt:?}"));
                }
                if took > wait + SECOND + SLACK {
                    self.found("a bounded wait ends in time", false, || {
                        format!("{attempt:?}")
                    });
                }
            }
            self.release(attempt);
        }
    }

    fn release(&mut self, attempt: &Attempt) {
        if let Some((_, reason)) = &attempt.lost {
            let excused = self.near_fault(&[attempt.ended]);
            self.found("no lock is lost", excused, || {
                format!("{reason}: {attempt:?}")
            });
        }
        let Some(release) = &attempt.release else {
            return;
        };
        let excused = self.near_fault(&[attempt.ended]);
        match &release.outcome {
            Ok(true) => {}
            Ok(false) if attempt.lost.is_some() => {}
            Ok(false) => self.found("what is held can be released", excused, || {
                format!("{attempt:?}")
            }),
            Err(text) => self.found("a release is confirmed", false, || {
                format!("{text}: {attempt:?}")
            }),
        }
    }

    fn unique(&mut self, history: &[Attempt]) {
        let mut seen = HashSet::new();
        for attempt in history {
            if attempt.token().is_some_and(|token| !seen.insert(token)) {
                self.found("no token is given twice", false, || format!("{attempt:?}"));
            }
        }
    }

    /// A key has one holder at a time, as holders see it.
    fn one_holder(&mut self, grants: &mut [&Attempt]) {
        grants.sort_by_key(|attempt| attempt.ended);
        let mut holder: Option<&Attempt> = None;
        for next in grants.iter() {
            if let Some(before) = holder.filter(|before| before.let_go() > next.ended) {
                let excused = self.near_fault(&[before.ended, next.ended]);
                self.found("one holder at a time", excused, || {
                    format!("{before:?}\n  and {next:?}")
                });
            }
            if holder.is_none_or(|before| before.let_go() <= next.let_go()) {
                holder = Some(next);
            }
        }
    }

    /// Who asks after a grant has been seen gets a greater token.
    fn rising(&mut self, grants: &mut [&Attempt]) {
        grants.sort_by_key(|attempt| attempt.asked);
        let mut ended: Vec<&Attempt> = grants.to_vec();
        ended.sort_by_key(|attempt| attempt.ended);
        let mut earlier = ended.into_iter().peekable();
        let mut highest: Option<&Attempt> = None;
        for attempt in grants.iter() {
            while let Some(before) = earlier.next_if(|before| before.ended < attempt.asked) {
                if highest.is_none_or(|highest| highest.token() < before.token()) {
                    highest = Some(before);
                }
            }
            if let Some(before) = highest.filter(|before| before.token() > attempt.token()) {
                let excused = self.two_active(&[before.ended, attempt.ended]);
                self.found("tokens rise", excused, || {
                    format!("{before:?}\n  before {attempt:?}")
                });
            }
        }
    }

    /// Requests of one client that waited for one key are served in the order in which it sent them.
    fn in_line(&mut self, grants: &mut [&Attempt]) {
        let mut clients: BTreeMap<u64, Vec<&Attempt>> = BTreeMap::new();
        for attempt in grants.iter().filter(|attempt| attempt.sent.is_some()) {
            clients.entry(attempt.client).or_default().push(attempt);
        }
        for line in clients.values_mut() {
            line.sort_by_key(|attempt| attempt.asked);
            for pair in line.windows(2) {
                let (first, second) = (pair[0], pair[1]);
                let follows = first.sent.is_some_and(|sent| sent <= second.asked);
                if follows && first.token() > second.token() {
                    let excused = self.near_fault(&[first.asked, second.asked]);
                    self.found("who waits is served in order", excused, || {
                        format!("{first:?}\n  after {second:?}")
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = 100 * SECOND;

    fn grant(key: &str, token: u64, asked: u64, ended: u64, released: u64) -> Attempt {
        Attempt {
            client: 1,
            key: key.to_owned(),
            wait_ms: Some(0),
            asked: START + asked,
            sent: Some(START + asked),
            ended: START + ended,
            outcome: Outcome::Granted(token),
            release: Some(Release {
                began: START + released,
                ended: START + released + 1,
                outcome: Ok(true),
            }),
            lost: None,
        }
    }

    fn rules_broken(history: &[Attempt], allowances: &[Allowance]) -> Vec<String> {
        let report = check(history, allowances);
        let rule = |text: &String| text.split(':').next().unwrap_or_default().to_owned();
        report.broken.iter().map(rule).collect()
    }

    #[test]
    fn a_history_in_order_is_clean() {
        let history = [
            grant("a", 1, 0, 1, 2),
            grant("a", 2, 1, 3, 4),
            grant("b", 3, 0, 9, 10),
        ];
        let report = check(&history, &[]);
        assert_eq!(report.broken, Vec::<String>::new());
        assert_eq!((report.calls, report.grants, report.longest_gap), (3, 3, 6));
    }

    #[test]
    fn every_rule_can_be_broken() {
        let good = grant("a", 1, 0, 1, 2);
        let with = |change: &dyn Fn(&mut Attempt)| {
            let mut attempt = good.clone();
            change(&mut attempt);
            attempt
        };
        let cases: [(&str, Vec<Attempt>); 11] = [
            (
                "no token is given twice",
                vec![good.clone(), grant("b", 1, 3, 4, 5)],
            ),
            (
                "one holder at a time",
                vec![grant("a", 1, 0, 1, 5), grant("a", 2, 0, 3, 6)],
            ),
            (
                "tokens rise",
                vec![grant("a", 2, 0, 1, 2), {
                    let mut later = grant("a", 1, 3, 4, 5);
                    later.client = 2;
                    later
                }],
            ),
            (
                "who waits is served in order",
                vec![grant("a", 2, 0, 7, 8), grant("a", 1, 1, 5, 6)],
            ),
            (
                "no error reaches the caller",
                vec![with(&|attempt| {
                    attempt.outcome = Outcome::Failed("x".into())
                })],
            ),
            (
                "no error reaches the caller",
                vec![with(&|attempt| {
                    attempt.wait_ms = None;
                    attempt.outcome = Outcome::Failed("x".into());
                })],
            ),
            (
                "no wait ends early",
                vec![with(&|attempt| {
                    attempt.wait_ms = Some(1);
                    attempt.outcome = Outcome::NotHad;
                })],
            ),
            (
                "a bounded wait ends in time",
                vec![with(&|attempt| {
                    attempt.wait_ms = Some(1);
                    attempt.ended += 2 * SECOND + SLACK;
                })],
            ),
            (
                "no lock is lost",
                vec![with(&|attempt| {
                    attempt.lost = Some((START + 2, "taken".into()))
                })],
            ),
            (
                "what is held can be released",
                vec![with(&|attempt| {
                    attempt.release.as_mut().expect("there").outcome = Ok(false);
                })],
            ),
            (
                "a release is confirmed",
                vec![with(&|attempt| {
                    attempt.release.as_mut().expect("there").outcome = Err("x".into());
                })],
            ),
        ];
        for (rule, history) in cases {
            assert_eq!(rules_broken(&history, &[]), [rule]);
        }
    }

    #[test]
    fn a_crash_excuses_what_is_near_it_and_no_falling_token() {
        let two = [grant("a", 1, 0, 1, 5), grant("a", 2, 0, 3, 6)];
        assert_eq!(rules_broken(&two, &[Allowance::crash(START)]), [""; 0]);
        let far = Allowance::crash(START + 2 * SECOND);
        assert_eq!(rules_broken(&two, &[far]), ["one holder at a time"]);
        let falling = [grant("a", 2, 0, 1, 2), {
            let mut later = grant("a", 1, 3, 4, 5);
            later.client = 2;
            later
        }];
        assert_eq!(
            rules_broken(&falling, &[Allowance::crash(START)]),
            ["tokens rise"]
        );
        assert_eq!(
            rules_broken(&falling, &[Allowance::cut(START, START + 9)]),
            [""; 0]
        );
    }
}
