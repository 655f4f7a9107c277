//! `fairlock status`: one line for each server that was named.

use super::json::{self, Node, NodeState};
use crate::arguments::Status;
use crate::exit::{self, Failure};
use crate::text::{self, Table};
use fairlock::{Client, Error};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::time::Duration;

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Nodes {
    nodes: Vec<Node>,
}

type Answer = (String, Result<fairlock::Status, Error>);

/// Shows the status, once or again and again.
pub(crate) fn status(arguments: &Status) -> Result<u8, Failure> {
    let clients: Vec<(String, Client)> = arguments
        .connection
        .addresses()
        .into_iter()
        .map(|address| {
            let client = arguments.connection.client_of(&address)?;
            Ok((address, client))
        })
        .collect::<Result<_, Failure>>()?;
    let in_place = arguments.watch && !arguments.json && io::stdout().is_terminal();
    let mut shown = 0;
    loop {
        let answers = ask(&clients);
        if !arguments.watch && answers.iter().all(|(_, answer)| answer.is_err()) {
            return Err(no_answer(answers));
        }
        let lines = if arguments.json {
            json_lines(answers)?
        } else {
            table_lines(&answers)?
        };
        let mut out = io::stdout().lock();
        if in_place && shown > 0 {
            // Up over what stands there, and away with it.
            write!(out, "\x1b[{shown}A\x1b[J")?;
        }
        shown = lines.iter().filter(|byte| **byte == b'\n').count();
        out.write_all(&lines)?;
        out.flush()?;
        if !arguments.watch {
            return Ok(exit::OK);
        }
        drop(out);
        std::thread::sleep(EVERY);
    }
}

/// Asks all servers at once, so that one that is down holds up no other.
fn ask(clients: &[(String, Client)]) -> Vec<Answer> {
    let (sender, receiver) = mpsc::channel();
    for (place, (_, client)) in clients.iter().enumerate() {
        let sender = sender.clone();
        client.status().submit(move |answer| {
            // The receiver waits for all of them.
            let _ = sender.send((place, answer));
        });
    }
    drop(sender);
    let mut answers: Vec<_> = receiver.iter().collect();
    answers.sort_by_key(|(place, _)| *place);
    let answers = answers.into_iter().map(|(_, answer)| answer);
    let addresses = clients.iter().map(|(address, _)| address.clone());
    addresses.zip(answers).collect()
}

/// The failure of the first server stands for all of them.
fn no_answer(answers: Vec<Answer>) -> Failure {
    let first = answers.into_iter().find_map(|(_, answer)| answer.err());
    first.map_or_else(|| Failure::usage("no server is named"), Failure::from)
}

fn json_lines(answers: Vec<Answer>) -> io::Result<Vec<u8>> {
    let nodes = answers
        .into_iter()
        .map(|(server, answer)| Node {
            server,
            state: match answer {
                Ok(status) => status.into(),
                Err(error) => NodeState::Failed {
                    error: error.to_string(),
                },
            },
        })
        .collect();
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
    for (server, answer) in answers {
        let server = text::safe(server.as_bytes());
        table.push(match answer {
            Ok(status) => [
                server,
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
            Err(error) => {
                let none = || "-".to_owned();
                [
                    server,
                    "down".to_owned(),
                    none(),
                    none(),
                    none(),
                    none(),
                    error.to_string(),
                ]
            }
        });
    }
    let mut lines = Vec::new();
    table.write(&mut lines)?;
    Ok(lines)
}
