//! Takes connections, as many as there may be, and pauses where the system has no descriptor left.

use super::connection::Connection;
use super::counters::Limit;
use super::entrants::Entry;
use super::log::now_and_then;
use super::serve::Serving;
use super::state::{Node, Shared, now};
use super::stream::Stream;
use super::tls;
use crate::engine::Time;
use crate::protocol::{Code, Reply, Split, limits, split};
use crate::tls::Acceptor;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long to wait before the system is asked again for what it did not have.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a connection beyond the limit may take to prove that it is a peer's.
const SORT_OUT: Duration = Duration::from_millis(200);
/// How many may do that at once.
pub(crate) const SORTED_OUT_AT_ONCE: u32 = 64;
/// Connections that are kept for a moment so that they can read why they are turned away.
const TURNED_AWAY_AT_ONCE: u32 = 4;

/// Never ends; to be dropped when the node takes no more connections.
pub(crate) async fn run(
    node: Shared,
    listener: TcpListener,
    most: u32,
    acceptor: Option<Arc<Acceptor>>,
) {
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                if !node.lock().has_room(now(), most) {
                    turn_away(&node, socket, address, most, acceptor.clone());
                    now_and_then!(
                        warn,
                        "{most} connections are open; others are turned away (max_connections)"
                    );
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
                node.lock().counters.accept_paused += 1;
                now_and_then!(error, "cannot take connections for now: {error}");
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
    let entry = node.lock().begin_handshake();
    let (node, acceptor) = (node.clone(), acceptor.clone());
    tokio::spawn(async move {
        let stream = tokio::select! {
            stream = tls::accept(&node, &acceptor, socket, address) => stream,
            () = entry.pushed_out.notified() => None,
        };
        node.lock().opening.leave(&entry);
        if let Some(stream) = stream {
            take(&node, stream, Vec::new());
        }
    });
}

/// Says why, and closes; but a peer is let in however many clients there are. Which of the two it is shows with the
/// first line, all of it: whoever is taken here becomes the only link of its peer, and so never holds a client's place.
fn turn_away(
    node: &Shared,
    socket: TcpStream,
    address: SocketAddr,
    most: u32,
    acceptor: Option<Arc<Acceptor>>,
) {
    let entry = node.lock().begin_sorting();
    if entry.is_none() && !node.lock().may_turn_away() {
        return;
    }
    let node = node.clone();
    tokio::spawn(async move {
        let mut stream = None;
        let mut why = (Code::Busy, format!("max_connections is reached: {most}"));
        if let Some(entry) = entry {
            let begin = tokio::select! {
                begin = async {
                    let opened = stream.insert(open(&node, socket, address, acceptor).await?);
                    first_line(opened).await
                } => begin,
                () = entry.pushed_out.notified() => None,
            };
            node.lock().sorting_out.leave(&entry);
            let may_say_why = match link_of(&node, address, begin.as_deref().unwrap_or_default()) {
                None => node.lock().may_turn_away(),
                Some(Err(refusal)) => {
                    why = refusal;
                    node.lock().may_say_why()
                }
                Some(Ok(())) => {
                    if let (Some(stream), Some(begin)) = (stream, begin) {
                        take(&node, stream, begin);
                    }
                    return;
                }
            };
            if !may_say_why {
                return;
            }
        } else {
            stream = open(&node, socket, address, acceptor).await;
        }
        if let Some(stream) = stream {
            let (code, text) = why;
            say_why(&node, stream, code, &text).await;
        }
        node.lock().turning_away -= 1;
    });
}

async fn open(
    node: &Shared,
    socket: TcpStream,
    address: SocketAddr,
    acceptor: Option<Arc<Acceptor>>,
) -> Option<Stream> {
    match acceptor {
        Some(acceptor) => tls::accept(node, &acceptor, socket, address).await,
        None => Stream::new(socket, address).ok(),
    }
}

/// What a connection beyond the limit says first, if it says it soon: of a line that may open a link all, of others enough.
async fn first_line(stream: &mut Stream) -> Option<Vec<u8>> {
    let mut begin = vec![0; limits::LINE_BYTES];
    let mut count = 0;
    let read = async {
        while count < begin.len() {
            let more = poll_fn(|cx| stream.poll_read(cx, &mut begin[count..])).await?;
            count += more;
            let said = &begin[..count];
            let may_open_link = crate::cluster::opens_link(said) || said == b"J";
            if more == 0 || !may_open_link || memchr::memchr(b'\n', said).is_some() {
                break;
            }
        }
        io::Result::Ok(())
    };
    tokio::time::timeout(SORT_OUT, read).await.ok()?.ok()?;
    begin.truncate(count);
    Some(begin)
}

/// Whether this begins with the line that opens a link, and if so whether the link may be opened.
fn link_of(node: &Shared, address: SocketAddr, begin: &[u8]) -> Option<Result<(), (Code, String)>> {
    match split(begin) {
        Split::Line { line, .. } if crate::cluster::opens_link(line) => {
            Some(node.lock().check_link(address, line))
        }
        _ => None,
    }
}

async fn say_why(node: &Shared, stream: Stream, code: Code, text: &str) {
    let mut line = Vec::new();
    Reply::Refused {
        operation: None,
        key: b"-",
        code: code.as_str(),
        tag: None,
        text,
    }
    .encode(&mut line);
    let mut connection = Connection::new(stream, now());
    connection.outbox.keep(&line, 0);
    super::farewell::see_off(node, &mut connection, true).await;
}

impl Node {
    /// Whether there is a place for one more connection: a free one, or else that of the one that has been there for longest
    /// without a word, if it had [`hello_timeout`](super::settings::Settings::hello_timeout) to say one.
    fn has_room(&mut self, now: Time, most: u32) -> bool {
        if !self.is_full(most) {
            return true;
        }
        let patience = self.settings.hello_timeout.as_micros() as u64;
        let Node {
            undecided,
            connections,
            ..
        } = self;
        let silent = undecided.pop_before(Time(now.0.saturating_sub(patience)), |id| {
            connections.is_undecided(*id)
        });
        let Some(silent) = silent else {
            return false;
        };
        self.counters.reached(Limit::HelloTimeout);
        now_and_then!(
            warn,
            "{most} connections are open; for each further one the oldest is closed that has not said anything (max_connections, hello_timeout)"
        );
        self.abandon(now, silent);
        self.flush_others(now);
        self.rearm();
        !self.is_full(most)
    }

    fn begin_handshake(&mut self) -> Entry {
        let (entry, pushed) = self.opening.enter();
        if pushed {
            self.counters.reached(Limit::Handshakes);
            now_and_then!(
                warn,
                "{} TLS handshakes are under way; for each further one the oldest is ended (max_handshakes)",
                self.settings.max_handshakes
            );
        }
        entry
    }

    /// A place for a connection that may turn out to be a peer's, where there are any peers.
    fn begin_sorting(&mut self) -> Option<Entry> {
        self.cluster.as_ref()?;
        Some(self.sorting_out.enter().0)
    }

    fn may_turn_away(&mut self) -> bool {
        self.counters.reached(Limit::Connections);
        self.may_say_why()
    }

    fn may_say_why(&mut self) -> bool {
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
