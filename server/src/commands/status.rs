//! `fairlock status`: one line for each node of the cluster, the given servers first asked and then
//! every node that one of them names.

use super::json::{self, Node, NodeState};
use crate::arguments::{Connection, Status};
use crate::exit::{self, Failure};
use crate::text::{self, Table};
use fairlock::{Client, Error, Pending, Role};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

/// How long a node may take for its answer.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Nodes {
    nodes: Vec<Node>,
}

/// A node that is asked, over a client of its own.
struct Asked {
    /// As the user or another node called it.
    server: String,
    client: Client,
}

struct Answer {
    server: String,
    result: Result<fairlock::Status, Silence>,
}

/// Why there is no status of a node.
#[derive(Clone)]
struct Silence {
    /// Beside the name of the node.
    reason: String,
    /// By itself.
    failure: Failure,
}

impl Answer {
    /// Whether this node is the one that others call `name`.
    fn is_of(&self, name: &str) -> bool {
        self.server == name || self.result.as_ref().is_ok_and(|status| status.node == name)
    }
}

/// Shows the status, once or again and again.
pub(crate) fn status(arguments: &Status) -> Result<u8, Failure> {
    let connection = &arguments.connection;
    let mut nodes = Vec::new();
    for address in connection.addresses() {
        nodes.push(asked(connection, address)?);
    }
    let in_place = arguments.watch && !arguments.json && io::stdout().is_terminal();
    let mut shown = 0;
    loop {
        let answers = ask_all(connection, &mut nodes)?;
        if !arguments.watch && answers.iter().all(|answer| answer.result.is_err()) {
            return Err(no_answer(answers));
        }
        let warning = of_two_active(&answers);
        let code = match warning {
            Some(_) => exit::FAILED,
            None => exit::OK,
        };
        let mut lines = if arguments.json {
            json_lines(answers)?
        } else {
            table_lines(&answers)?
        };
        match warning {
            // It has to stand where it is wiped away with the rest.
            Some(warning) if in_place => writeln!(lines, "{}", text::plain(&warning))?,
            Some(warning) => exit::tell(warning),
            None => {}
        }
        let mut out = io::stdout().lock();
        if in_place && shown > 0 {
            // Up over what stands there, and away with it.
            write!(out, "\x1b[{shown}A\x1b[J")?;
        }
        shown = lines.iter().filter(|byte| **byte == b'\n').count();
        out.write_all(&lines)?;
        out.flush()?;
        if !arguments.watch {
            return Ok(code);
        }
        drop(out);
        std::thread::sleep(EVERY);
    }
}

fn asked(connection: &Connection, server: String) -> Result<Asked, Failure> {
    let client = connection.client_of(&server)?;
    Ok(Asked { server, client })
}

/// Asks all nodes that are known, and those that their answers name, until no new one is named. Gives
/// the answers in the order of the cluster's own list.
fn ask_all(connection: &Connection, nodes: &mut Vec<Asked>) -> Result<Vec<Answer>, Failure> {
    let mut answers: Vec<Answer> = Vec::new();
    while answers.len() < nodes.len() {
        answers.extend(ask(&nodes[answers.len()..]));
        for name in named(&answers) {
            if !answers.iter().any(|answer| answer.is_of(&name)) {
                nodes.push(asked(connection, name)?);
            }
        }
    }
    let list = named(&answers);
    // Stable, so what no list names stays in the order in which it was given, behind the rest.
    answers.sort_by_key(|answer| {
        let place = list.iter().position(|name| answer.is_of(name));
        place.unwrap_or(list.len())
    });
    Ok(answers)
}

/// All nodes that any answer names, each once.
fn named(answers: &[Answer]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let statuses = answers
        .iter()
        .filter_map(|answer| answer.result.as_ref().ok());
    for name in statuses.flat_map(|status| &status.peers) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Asks nodes at once, so that one that is down or frozen holds up the rest for [`PATIENCE`] at most.
fn ask(nodes: &[Asked]) -> Vec<Answer> {
    let (sender, receiver) = mpsc::channel();
    let ask = |(place, node): (usize, &Asked)| {
        let sender = sender.clone();
        node.client.status().submit(move |answer| {
            // Nobody may wait for it any more.
            let _ = sender.send((place, answer));
        })
    };
    let pending: Vec<Pending> = nodes.iter().enumerate().map(ask).collect();
    let mut answers: Vec<Answer> = nodes
        .iter()
        .map(|node| Answer {
            server: node.server.clone(),
            result: Err(silence(&node.server)),
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    for _ in nodes {
        let left = end.saturating_duration_since(Instant::now());
        let Ok((place, result)) = receiver.recv_timeout(left) else {
            pending.iter().for_each(Pending::cancel);
            break;
        };
        let answer: &mut Answer = &mut answers[place];
        answer.result = result.map_err(|error| refusal(&answer.server, error));
    }
    answers
}

/// What to say where nobody answered: one server's own words, or each with its reason. The code is that of the first.
fn no_answer(answers: Vec<Answer>) -> Failure {
    let silent: Vec<(String, Silence)> = answers
        .into_iter()
        .filter_map(|answer| Some((answer.server, answer.result.err()?)))
        .collect();
    let each = |(server, silence): &(String, Silence)| format!("{server}: {}", silence.reason);
    match silent.as_slice() {
        [] => Failure::usage("no server is named"),
        [(_, silence)] => silence.failure.clone(),
        [(_, first), ..] => Failure::new(
            first.failure.code,
            format_args!(
                "no server answered: {}",
                silent.iter().map(each).collect::<Vec<_>>().join("; ")
            ),
        ),
    }
}

fn silence(server: &str) -> Silence {
    let reason = format!("no answer within {} s", PATIENCE.as_secs());
    let failure = Failure::new(exit::UNREACHABLE, format_args!("{server}: {reason}"));
    Silence { reason, failure }
}

/// What an error says of one server: without its address, and without the advice for those who have
/// only one.
fn refusal(server: &str, error: Error) -> Silence {
    let text = error.to_string();
    let own = format!("{server}: ");
    let reason = text.split_once(&own).map_or(&*text, |(_, reason)| reason);
    let reason = reason
        .rsplit_once(" (is a server")
        .map_or(reason, |(reason, _)| reason);
    Silence {
        reason: reason.to_owned(),
        failure: error.into(),
    }
}

/// What nobody should overlook: two nodes that take each other for dead, or do not know each other.
fn of_two_active(answers: &[Answer]) -> Option<String> {
    let statuses = answers
        .iter()
        .filter_map(|answer| answer.result.as_ref().ok());
    let active = statuses.filter(|status| status.role == Role::Active);
    let mut nodes: Vec<&str> = active.map(|status| &*status.node).collect();
    nodes.sort_unstable();
    // One that was asked under two of its addresses is one.
    nodes.dedup();
    (nodes.len() > 1).then(|| {
        format!(
            "more than one node is active: {}. Each of them may grant the same key; their logs say why they do not hear each other",
            nodes.join(", ")
        )
    })
}

fn json_lines(answers: Vec<Answer>) -> io::Result<Vec<u8>> {
    let node = |Answer { server, result }| Node {
        state: match result {
            Ok(status) => status.into(),
            Err(silence) => NodeState::Failed {
                error: silence.reason,
            },
        },
        server,
    };
    let nodes = answers.into_iter().map(node).collect();
    let mut lines = Vec::new();
    json::print(&mut lines, &Nodes { nodes })?;
    Ok(lines)
}

fn table_lines(answers: &[Answer]) -> io::Result<Vec<u8>> {
    let mut table = Table::new([
        "SERVER",
        "ROLE",
        ">TERM",
        ">HELD",
        ">WAITING",
        ">CONNECTIONS",
        "STANDBYS",
    ]);
    for Answer { server, result } in answers {
        let shown = text::safe(server.as_bytes());
        table.push(match result {
            Ok(status) => [
                shown,
                status.role.to_string(),
                status.term.to_string(),
                status.held.to_string(),
                status.waiting.to_string(),
                status.connections.to_string(),
                match status.standbys.as_slice() {
                    [] => "-".to_owned(),
                    standbys => text::safe(standbys.join(",").as_bytes()),
                },
            ],
            Err(silence) => {
                let none = || "-".to_owned();
                let reason = text::plain(&silence.reason);
                [
                    shown,
                    "down".to_owned(),
                    none(),
                    none(),
                    none(),
                    none(),
                    reason,
                ]
            }
        });
    }
    let mut lines = Vec::new();
    table.write(&mut lines)?;
    Ok(lines)
}
