//! Performs a play: does what its lines do, waits for what its lines expect, and stops at the first
//! line that does not come true.
//!
//! What happens is kept in queues, one a connection, one an operation of the caller and one a node
//! (its new connections), so that only the order within each of them matters, and what a play says in time.

mod events;
mod expect;
mod names;
mod scenery;
#[cfg(test)]
mod tests;

use crate::driver::Actor;
use crate::pattern::Names;
use crate::scenario::{Action, Scenario, Step, Window};
use crate::stage::{Event, Stage};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long an expected line may take where the play says nothing of time.
const PATIENCE: Duration = Duration::from_secs(6);

/// How much earlier than told a time may seem, because the two moments are noted by different threads.
const EARLY: Duration = Duration::from_millis(40);

/// What the client needs to hear the last answer to a hello before it is told to do something.
const SETTLE: Duration = Duration::from_millis(60);

/// How long nothing may happen behind the last line of a play.
const AFTERMATH: Duration = Duration::from_millis(60);

/// What became of a play.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was seen, a line for each step, ids and tags by name.
    pub(crate) trace: Vec<String>,
    /// The step that did not come true.
    pub(crate) failure: Option<Failure>,
    /// Everything, with times.
    pub(crate) log: Vec<String>,
}

/// The step that did not come true, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The step's index; the number of steps for what came after the last one.
    pub(crate) step: usize,
    /// What was seen instead.
    pub(crate) why: String,
    /// All was right but later than it may be.
    pub(crate) late: bool,
}

enum Trouble {
    Wrong(String),
    Late(String),
}

use Trouble::{Late, Wrong};

struct Performance<'a> {
    driver: &'a dyn Actor,
    play: u64,
    slack: Duration,
    events: Receiver<Event>,
    stage: Stage,
    nodes: Vec<Node>,
    connections: Vec<Seen>,
    answers: HashMap<String, VecDeque<(Instant, String)>>,
    names: Names,
    /// Which node a name in upper case means.
    variables: HashMap<String, usize>,
    last_connection: Option<usize>,
    last: Instant,
    marks: HashMap<String, Instant>,
    gone: Option<String>,
    trace: Vec<String>,
}

struct Node {
    name: String,
    address: SocketAddr,
    settings: BTreeMap<String, String>,
    accepted: usize,
    greeted: usize,
    connects: VecDeque<Instant>,
}

struct Seen {
    node: usize,
    label: Option<String>,
    queue: VecDeque<(Instant, Item)>,
    cut_by_server: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Line(String),
    Ended { reset: bool },
}

/// Plays `scenario` with the client of `driver`. `slack` is what is added to the end of each time.
pub(crate) fn perform(
    scenario: &Scenario,
    driver: &dyn Actor,
    play: u64,
    slack: Duration,
) -> Outcome {
    let (sender, events) = channel();
    let mut performance = Performance {
        driver,
        play,
        slack,
        events,
        stage: Stage::new(sender.clone()),
        nodes: Vec::new(),
        connections: Vec::new(),
        answers: HashMap::new(),
        names: Names::default(),
        variables: HashMap::new(),
        last_connection: None,
        last: Instant::now(),
        marks: HashMap::new(),
        gone: None,
        trace: Vec::new(),
    };
    if !driver.attach(play, sender) {
        performance.gone = Some("the driver has ended".to_owned());
    }
    let mut failure = None;
    for (index, step) in scenario.steps.iter().enumerate() {
        performance.stage.remark(&format!("-- {}", step.text));
        if let Err(trouble) = performance.step(step) {
            failure = Some(fail(index, trouble));
            break;
        }
    }
    if failure.is_none()
        && let Err(trouble) = performance.quiet(AFTERMATH)
    {
        failure = Some(fail(scenario.steps.len(), trouble));
    }
    driver.detach(play);
    Outcome {
        log: performance.stage.log(),
        trace: performance.trace,
        failure,
    }
}

fn fail(step: usize, trouble: Trouble) -> Failure {
    let (why, late) = match trouble {
        Wrong(why) => (why, false),
        Late(why) => (why, true),
    };
    Failure { step, why, late }
}

impl Performance<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Trouble> {
        let begin = match &step.since {
            None => self.last,
            Some(mark) => *self
                .marks
                .get(mark)
                .ok_or_else(|| Wrong(format!("the play has no mark {mark}")))?,
        };
        let limit = self.limit(begin, step.when);
        let seen = match &step.action {
            Action::Mark { name } => {
                self.marks.insert(name.clone(), self.last);
                return Ok(());
            }
            Action::Node { name, settings } => return self.set_node(name, settings),
            Action::Open {
                nodes,
                options,
                wait,
            } => return self.open(nodes, options, *wait),
            Action::Do {
                op,
                verb,
                arguments,
                interrupted_later,
            } => {
                let flag = if *interrupted_later {
                    " cancellable"
                } else {
                    ""
                };
                self.act(&format!("{verb} {op} {}{flag}", arguments.join(" ")));
                return Ok(());
            }
            Action::Says {
                connection,
                bytes,
                pace,
            } => return self.say(connection, bytes, *pace),
            Action::Cut { connection, how } => return self.cut(connection, *how),
            Action::Quiet { time } => return self.quiet(*time),
            Action::Pause { time } => {
                thread::sleep(*time);
                self.last = Instant::now();
                return Ok(());
            }
            Action::NoConnect { node, time } => return self.no_connect(node, *time),
            Action::Accepted { node, count } => return self.accepted(node, *count),
            Action::Got { op, pattern } => {
                let at = self.got(op, pattern, limit)?;
                (at, format!("got {op} {}", pattern.text()))
            }
            Action::Sees {
                connection,
                anywhere,
                pattern,
            } => {
                let at = self.sees(connection, *anywhere, pattern, limit)?;
                (at, format!("{connection} < {}", pattern.text()))
            }
            Action::Ended { connection, reset } => {
                let at = self.ended(connection, *reset, limit)?;
                (at, step.text.clone())
            }
            Action::Connects { node } => {
                let at = self.connects(node, limit)?;
                (at, format!("{node} connects"))
            }
        };
        let (at, text) = seen;
        self.check_time(begin, step.when, at)?;
        self.last = at;
        self.trace.push(text);
        Ok(())
    }

    /// Until when an expected thing may come.
    fn limit(&self, begin: Instant, when: Option<Window>) -> Instant {
        match when {
            // Longer than allowed, so that "late" can be told from "never".
            Some(window) => begin + window.to + self.slack + PATIENCE / 2,
            None => Instant::now() + PATIENCE + self.slack,
        }
    }

    fn check_time(&self, begin: Instant, when: Option<Window>, at: Instant) -> Result<(), Trouble> {
        let Some(window) = when else { return Ok(()) };
        let passed = at.saturating_duration_since(begin);
        if passed + EARLY < window.from {
            return Err(Wrong(format!(
                "came too early, after {} ms",
                passed.as_millis()
            )));
        }
        if passed > window.to + self.slack {
            return Err(Late(format!(
                "came too late, after {} ms",
                passed.as_millis()
            )));
        }
        Ok(())
    }

    fn act(&mut self, command: &str) {
        self.stage.remark(&format!("do {command}"));
        self.last = Instant::now();
        self.driver.tell(self.play, command.trim_end());
    }
}
