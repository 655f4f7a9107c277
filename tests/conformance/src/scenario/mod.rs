//! A scenario as steps. The README beside the scenarios explains what they say. Knows nothing of sockets and drivers.

mod read;

pub(crate) use read::{bytes, parse};

use crate::pattern::Pattern;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One play: what the client is told, what the server sees and answers, what the caller gets, in order.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// Unique, in kebab case.
    pub(crate) name: String,
    /// The rules it proves, such as `4.6`.
    pub(crate) rule: String,
    /// The languages in which it cannot be played.
    pub(crate) except: Vec<String>,
    /// What happens, from top to bottom.
    pub(crate) steps: Vec<Step>,
    /// How long the play takes at least; the longest are begun first.
    pub(crate) length: Duration,
}

impl Scenario {
    /// Whether an operation of the caller is ended in it from outside: cancelled, or by closing the client.
    pub(crate) fn interrupts(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(&step.action, Action::Do { verb, .. } if verb == "cancel" || verb == "close")
        })
    }
}

/// One line of a play.
#[derive(Debug)]
pub(crate) struct Step {
    /// Where it stands, for messages.
    pub(crate) line: usize,
    /// As it stands there.
    pub(crate) text: String,
    /// When it is to happen, counted from the step before or from a mark.
    pub(crate) when: Option<Window>,
    /// The mark that `when` counts from.
    pub(crate) since: Option<String>,
    /// What happens.
    pub(crate) action: Action,
}

/// The time between two steps: never earlier than the one, not much later than the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// Earliest.
    pub(crate) from: Duration,
    /// Latest; the runner adds what a busy machine needs.
    pub(crate) to: Duration,
}

/// What a line of a play says.
#[derive(Debug)]
pub(crate) enum Action {
    /// `node a …`: from here on the node at this address behaves so.
    Node {
        name: String,
        settings: BTreeMap<String, String>,
    },
    /// `client a,b …`: the driver makes a client with these servers.
    Open {
        nodes: Vec<String>,
        options: Vec<String>,
        wait: bool,
    },
    /// `do 2 release 1`: the driver begins an operation.
    Do {
        op: String,
        verb: String,
        arguments: Vec<String>,
        interrupted_later: bool,
    },
    /// `got 2 released true`: the caller's answer.
    Got { op: String, pattern: Pattern },
    /// `a.x < A k 30 0 #1`: a line that the server sees.
    Sees {
        connection: Connection,
        anywhere: bool,
        pattern: Pattern,
    },
    /// `a.x ended`, `a.x reset by client`: the client gives the connection up.
    Ended { connection: Connection, reset: bool },
    /// `a connects`: a new connection arrives.
    Connects { node: String },
    /// `a no connect for 2s`.
    NoConnect { node: String, time: Duration },
    /// `a accepted 2`: as many connections have come so far.
    Accepted { node: String, count: usize },
    /// `a.x > A k 100 #1`: the server says this.
    Says {
        connection: Connection,
        bytes: String,
        pace: Option<Duration>,
    },
    /// `a.x close`, `a.x reset`, `a.x half-close`; `a.* close` closes all of them.
    Cut { connection: Connection, how: Cut },
    /// `mark t`: the moment of the step before gets a name.
    Mark { name: String },
    /// `quiet 300ms`: nothing happens for so long, and nothing is left to be looked at.
    Quiet { time: Duration },
    /// `pause 300ms`: time passes; what happens is looked at afterwards.
    Pause { time: Duration },
}

/// How the server ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    Close,
    Reset,
    HalfClose,
}

/// Names a connection of a node: `a.x` is always the same one, bound where the name is first met. `last`
/// is the one on which the line before came. A node in upper case stands for any of those that the play
/// has and no other such name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Connection {
    /// None in `*` and `last`: any node.
    pub(crate) node: Option<String>,
    /// None in `a.*`: any connection, and no name for it.
    pub(crate) label: Option<String>,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.label) {
            (Some(node), Some(label)) => write!(f, "{node}.{label}"),
            (Some(node), None) => write!(f, "{node}.*"),
            (None, Some(label)) => f.write_str(label),
            (None, None) => f.write_str("*"),
        }
    }
}
