//! Takes connections, as many as there may be, and pauses where the system has no descriptor left.

use super::connection::Connection;
use super::serve::Serving;
use super::state::{Node, Shared, now};
use super::stream::Stream;
use crate::engine::Time;
use crate::protocol::{Code, Millis, Reply};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long to wait before the system is asked again for what it did not have.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the log says that connections are turned away.
const COMPLAIN_EVERY: Millis = Millis(60_000);
/// How long a connection beyond the limit may take to show that it is a peer's.
const SORT_OUT: Duration = Duration::from_millis(200);
/// How many may do that at once.
const SORTED_OUT_AT_ONCE: u32 = 64;
/// Connections that are kept for a moment so that they can read why they are turned away.
const TURNED_AWAY_AT_ONCE: u32 = 4;

/// Never ends; to be dropped when the node takes no more connections.
pub(crate) async fn run(node: Shared, listener: TcpListener, most: u32) {
    let mut complained = None;
    let mut complain = |now: Time| {
        let due = complained.is_none_or(|last: Time| now >= last.after(COMPLAIN_EVERY));
        if due {
            complained = Some(now);
        }
        due
    };
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                if node.lock().open >= most {
                    if node.lock().may_sort_out() {
                        tokio::spawn(sort_out(node.clone(), socket, address, most));
                        continue;
                    }
                    turn_away(&node, socket, address, most);
                    if complain(now()) {
                        tracing::warn!(
                            "{most} connections are open; others are turned away (max_connections)"
                        );
                    }
                } else {
                    take(&node, socket, address);
                }
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                if complain(now()) {
                    tracing::error!("cannot take connections for now: {error}");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A peer is let in however many clients there are. Which of the two it is shows with the first bytes.
async fn sort_out(node: Shared, socket: TcpStream, address: SocketAddr, most: u32) {
    let mut begin = [0; 2];
    node.lock().sorting_out += 1;
    let peeked = tokio::time::timeout(SORT_OUT, socket.peek(&mut begin)).await;
    node.lock().sorting_out -= 1;
    if matches!(peeked, Ok(Ok(2))) && crate::cluster::opens_link(&begin) {
        take(&node, socket, address);
    } else {
        turn_away(&node, socket, address, most);
    }
}

impl Node {
    fn may_sort_out(&self) -> bool {
        self.cluster.is_some() && self.sorting_out < SORTED_OUT_AT_ONCE
    }
}

fn take(node: &Shared, socket: TcpStream, address: SocketAddr) {
    // An error means that the client has gone in the meantime.
    let Ok(stream) = Stream::new(socket, address) else {
        return;
    };
    let id = {
        let mut node = node.lock();
        node.open += 1;
        node.connect(Connection::new(stream, now()), &address.to_string())
    };
    tokio::spawn(Serving::new(node.clone(), id));
}

/// Says why, and closes.
fn turn_away(node: &Shared, socket: TcpStream, address: SocketAddr, most: u32) {
    node.lock().counters.turned_away += 1;
    if node.lock().turning_away >= TURNED_AWAY_AT_ONCE {
        return;
    }
    let mut line = Vec::new();
    let text = format!("max_connections is reached: {most}");
    Reply::Refused {
        operation: None,
        key: b"-",
        code: Code::Busy.as_str(),
        tag: None,
        text: &text,
    }
    .encode(&mut line);
    node.lock().turning_away += 1;
    let node = node.clone();
    tokio::spawn(async move {
        if let Ok(stream) = Stream::new(socket, address) {
            let mut connection = Connection::new(stream, now());
            connection.outbox.keep(&line, 0);
            super::farewell::see_off(&node, &mut connection, true).await;
        }
        node.lock().turning_away -= 1;
    });
}

/// Errors of accept that say something of the connection that was to be taken, not of the node.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
