//! As little of an HTTP client as the tests need: one request, one connection.

use crate::support::LIMIT;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(other, _)| other == name);
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} stands there twice");
        first
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(super) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

pub(super) fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(LIMIT)).expect("it can be set");
    socket
}

/// Sends a head as it is, and reads until the other side closes.
pub(super) fn exchange(address: &str, head: &str) -> Answer {
    let mut socket = connect(address);
    socket.write_all(head.as_bytes()).expect("it reads");
    read_answer(&mut socket)
}

pub(super) fn read_answer(socket: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    socket
        .read_to_end(&mut bytes)
        .expect("it answers and closes");
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer, but {:?}", String::from_utf8_lossy(&bytes)));
    let head = std::str::from_utf8(&bytes[..end]).expect("a head is text");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").expect("a header");
        (name.to_ascii_lowercase(), value.to_owned())
    });
    Answer {
        status: status
            .and_then(|status| status.parse().ok())
            .expect("a status"),
        headers: headers.collect(),
        body: bytes[end + 4..].to_vec(),
    }
}

/// `METHOD path`, with further lines of the head.
pub(super) fn ask(address: &str, method: &str, path: &str, lines: &[&str]) -> Answer {
    let more: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n");
    exchange(address, &head)
}

pub(super) fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path, &[])
}
