//! What `--json` prints. The fields are stable: scripts read them. Tokens are strings, because they
//! are greater than 2⁵³ and many readers of JSON have no number that large.

use fairlock::{HeldLock, Status, Waiter};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// A key: as text, or where it is no text as the hex digits of its bytes.
#[derive(Serialize)]
pub(crate) struct Key {
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        match std::str::from_utf8(bytes) {
            Ok(text) => Key {
                key: Some(text.to_owned()),
                key_hex: None,
            },
            Err(_) => Key {
                key: None,
                key_hex: Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
    }
}

#[derive(Serialize)]
pub(super) struct Lock {
    #[serde(flatten)]
    key: Key,
    token: String,
    remaining: f64,
    waiters: u64,
    name: Option<String>,
    address: String,
}

impl From<&HeldLock> for Lock {
    fn from(lock: &HeldLock) -> Lock {
        Lock {
            key: lock.key.as_slice().into(),
            token: lock.token.to_string(),
            remaining: seconds(lock.remaining),
            waiters: lock.waiters,
            name: text(lock.name.as_deref()),
            address: lock.address.clone(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Inspection {
    pub(super) state: &'static str,
    #[serde(flatten)]
    pub(super) rest: InspectionRest,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum InspectionRest {
    Free {
        #[serde(flatten)]
        key: Key,
        waiters: u64,
    },
    Held(Lock),
}

#[derive(Serialize)]
pub(super) struct Queue {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) count: u64,
    pub(super) waiters: Vec<QueueRow>,
}

#[derive(Serialize)]
pub(super) struct QueueRow {
    position: u64,
    waited: f64,
    name: Option<String>,
    address: String,
}

impl From<&Waiter> for QueueRow {
    fn from(waiter: &Waiter) -> QueueRow {
        QueueRow {
            position: waiter.position,
            waited: seconds(waiter.waited),
            name: text(waiter.name.as_deref()),
            address: waiter.address.clone(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Node {
    pub(super) server: String,
    #[serde(flatten)]
    pub(super) state: NodeState,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum NodeState {
    Reached {
        role: String,
        node: String,
        active: Option<String>,
        term: u32,
        held: u64,
        waiting: u64,
        connections: u64,
        standbys: Vec<String>,
        peers: Vec<String>,
    },
    Failed {
        error: String,
    },
}

impl From<Status> for NodeState {
    fn from(status: Status) -> NodeState {
        NodeState::Reached {
            role: status.role.to_string(),
            node: status.node,
            active: status.active,
            term: status.term,
            held: status.held,
            waiting: status.waiting,
            connections: status.connections,
            standbys: status.standbys,
            peers: status.peers,
        }
    }
}

pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

pub(crate) fn text(name: Option<&[u8]>) -> Option<String> {
    name.map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Prints one value on one line.
pub(super) fn print(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock::Token;

    fn held(key: &[u8]) -> String {
        let lock = HeldLock {
            key: key.to_vec(),
            token: Token::new(123_695_058_124_800_001).expect("a token"),
            remaining: Duration::from_millis(1500),
            waiters: 2,
            name: None,
            address: "127.0.0.1:5".to_owned(),
        };
        serde_json::to_string(&Lock::from(&lock)).expect("it can be written")
    }

    #[test]
    fn tokens_are_strings_and_keys_are_text_or_hex() {
        assert_eq!(
            held("café bar".as_bytes()),
            r#"{"key":"café bar","token":"123695058124800001","remaining":1.5,"waiters":2,"name":null,"address":"127.0.0.1:5"}"#
        );
        assert!(held(b"\xff\0").starts_with(r#"{"key":null,"key_hex":"ff00","token":"#));
    }
}
