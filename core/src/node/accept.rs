//! Takes connections, as many as there may be, and pauses where the system has no descriptor left.

use super::connection::Connection;
use super::serve::Serving;
use super::state::{Node, Shared, now};
use super::stream::Stream;
use super::tls;
use crate::engine::Time;
use crate::protocol::{Code, Millis, Reply, limits};
use crate::tls::Acceptor;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
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
pub(crate) async fn run(
    node: Shared,
    listener: TcpListener,
    most: u32,
    acceptor: Option<Arc<Acceptor>>,
) {
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
                if node.lock().is_full(most) {
                    turn_away(&node, socket, address, most, acceptor.clone());
                    if complain(now()) {
                        tracing::warn!(
                            "{most} connections are open; others are turned away (max_connections)"
                        );
                    }
                } else {
                    match &acceptor {
                        Some(acceptor) => take_secured(&node, acceptor, socket, address),
                        // An error means that the client has gone in the meantime.
                        None => {
                            let stream = Stream::new(socket, address);
                            drop(stream.map(|stream| take(&node, stream, Vec::new())));
                        }
                    }
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

/// Takes a connection of which `begin` has been read.
fn take(node: &Shared, stream: Stream, begin: Vec<u8>) {
    let address = stream.peer_address().to_string();
    let id = {
        let mut node = node.lock();
        node.open += 1;
        let mut connection = Connection::new(stream, now());
        connection.unhandled = begin;
        node.connect(connection, &address)
    };
    tokio::spawn(Serving::new(node.clone(), id));
}

/// Takes a connection once its handshake is done. Until then it only counts.
fn take_secured(node: &Shared, acceptor: &Arc<Acceptor>, socket: TcpStream, address: SocketAddr) {
    node.lock().opening += 1;
    let (node, acceptor) = (node.clone(), acceptor.clone());
    tokio::spawn(async move {
        let stream = tls::accept(&node, &acceptor, socket, address).await;
        node.lock().opening -= 1;
        if let Some(stream) = stream {
            take(&node, stream, Vec::new());
        }
    });
}

/// Says why, and closes; but a peer is let in however many clients there are. Which of the two it is shows with the
/// first bytes.
fn turn_away(
    node: &Shared,
    socket: TcpStream,
    address: SocketAddr,
    most: u32,
    acceptor: Option<Arc<Acceptor>>,
) {
    let sorts = node.lock().may_sort_out();
    if !sorts && !node.lock().may_turn_away() {
        return;
    }
    let node = node.clone();
    tokio::spawn(async move {
        let mut stream = match acceptor {
            Some(acceptor) => tls::accept(&node, &acceptor, socket, address).await,
            None => Stream::new(socket, address).ok(),
        };
        if sorts {
            let begin = match &mut stream {
                Some(stream) => first_bytes(stream).await,
                None => None,
            };
            node.lock().sorting_out -= 1;
            if let Some(begin) = begin
                && crate::cluster::opens_link(&begin)
                && let Some(stream) = stream
            {
                return take(&node, stream, begin);
            }
            if !node.lock().may_turn_away() {
                return;
            }
        }
        if let Some(stream) = stream {
            say_busy(&node, stream, most).await;
        }
        node.lock().turning_away -= 1;
    });
}

/// What a connection beyond the limit says first, if it says it soon.
async fn first_bytes(stream: &mut Stream) -> Option<Vec<u8>> {
    let mut begin = vec![0; limits::LINE_BYTES];
    let read = poll_fn(|cx| stream.poll_read(cx, &mut begin));
    let count = tokio::time::timeout(SORT_OUT, read).await.ok()?.ok()?;
    begin.truncate(count);
    Some(begin)
}

async fn say_busy(node: &Shared, stream: Stream, most: u32) {
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
    let mut connection = Connection::new(stream, now());
    connection.outbox.keep(&line, 0);
    super::farewell::see_off(node, &mut connection, true).await;
}

impl Node {
    fn may_sort_out(&mut self) -> bool {
        let may = self.cluster.is_some() && self.sorting_out < SORTED_OUT_AT_ONCE;
        self.sorting_out += u32::from(may);
        may
    }

    fn may_turn_away(&mut self) -> bool {
        self.counters.turned_away += 1;
        let may = self.turning_away < TURNED_AWAY_AT_ONCE;
        self.turning_away += u32::from(may);
        may
    }
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
