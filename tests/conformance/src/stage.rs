//! The scripted server: sockets that say what they see and do what they are told. Each address listens
//! on a port of its own, which stays its own while it refuses connections.
//!
//! ```text
//! socket ──▶ a thread for each connection ──▶ Event ──▶ the play
//! ```
//!
//! It answers by itself only the hello and `P`, and only where the node was not told otherwise. What a
//! line means, and whether it was expected, is none of its business.

use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Something that happened, with the moment when it was seen.
#[derive(Debug)]
pub(crate) struct Event {
    /// When.
    pub(crate) at: Instant,
    /// What.
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    /// A connection was accepted; without a number it was reset at once.
    Connected {
        node: usize,
        connection: Option<usize>,
    },
    /// The first line of a connection, answered by the stage itself.
    Hello { connection: usize, line: String },
    /// A line of the client.
    Line { connection: usize, line: String },
    /// The client ended its side.
    Ended { connection: usize, reset: bool },
    /// The driver says what the caller got.
    Answer { op: String, text: String },
    /// The driver has ended.
    DriverGone { why: String },
}

/// Sockets that are bound and never listen. They keep the ports of all plays until the run is over, so that no client
/// of a play that has ended, and still tries to connect, meets the node of another.
static PORTS: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

/// How a node treats whoever connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// Accepts.
    Open,
    /// Accepts and resets at once.
    Drop,
    /// Refuses.
    Closed,
}

/// What the stage answers by itself to one kind of request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Automatic {
    /// `R key ok #7`: the words behind the key.
    Words(String),
    /// `M R key address #7`.
    Moved(String),
    /// `E R key code #7 text`.
    Refused(String),
    /// Nothing.
    Silence,
}

/// How a node behaves from now on.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// What becomes of new connections.
    pub(crate) door: Door,
    /// The answer to a hello, if the stage is to give it.
    pub(crate) hello: Option<String>,
    /// Whether the stage answers `P`.
    pub(crate) pings: bool,
    /// What the stage answers to each request with this letter: the fields behind letter and key, an `M`
    /// with this address, or nothing at all. The play does not see those requests.
    pub(crate) automatic: Vec<(char, Automatic)>,
}

/// All nodes and connections of one play.
#[derive(Debug)]
pub(crate) struct Stage {
    nodes: Vec<Node>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Node {
    address: SocketAddr,
    listener: Option<Arc<Socket>>,
    behaviour: Arc<Mutex<Behaviour>>,
}

#[derive(Debug)]
struct Shared {
    connections: Mutex<Vec<Option<Arc<TcpStream>>>>,
    events: Sender<Event>,
    log: Mutex<Vec<String>>,
    begin: Instant,
}

impl Stage {
    /// An empty stage that tells `events` what happens.
    pub(crate) fn new(events: Sender<Event>) -> Stage {
        Stage {
            nodes: Vec::new(),
            shared: Arc::new(Shared {
                connections: Mutex::default(),
                events,
                log: Mutex::default(),
                begin: Instant::now(),
            }),
        }
    }

    /// Gets a port for one more node. It refuses connections until it is told to behave otherwise.
    pub(crate) fn add_node(&mut self) -> io::Result<SocketAddr> {
        let guard = reusable_socket()?;
        guard.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = guard
            .local_addr()?
            .as_socket()
            .expect("it was bound to an IP address");
        PORTS.lock().expect("no holder panics").push(guard);
        self.nodes.push(Node {
            address,
            listener: None,
            behaviour: Arc::new(Mutex::new(Behaviour {
                door: Door::Closed,
                hello: None,
                pings: true,
                automatic: Vec::new(),
            })),
        });
        Ok(address)
    }

    /// Changes how a node behaves: at once for new connections, hellos and `P`.
    pub(crate) fn behave(&mut self, node: usize, behaviour: Behaviour) -> io::Result<()> {
        let open = behaviour.door != Door::Closed;
        let shared = self.shared.clone();
        let node_number = node;
        let node = &mut self.nodes[node];
        *node.behaviour.lock().expect("no holder panics") = behaviour;
        if !open && let Some(listener) = node.listener.take() {
            // Wakes the thread that accepts; the port itself is kept by the guard.
            let _ = listener.shutdown(Shutdown::Both);
        }
        if open && node.listener.is_none() {
            let listener = Arc::new(reusable_socket()?);
            listener.bind(&node.address.into())?;
            listener.listen(64)?;
            node.listener = Some(listener.clone());
            let behaviour = node.behaviour.clone();
            thread::spawn(move || accept(node_number, &listener, behaviour, &shared));
        }
        Ok(())
    }

    /// Sends bytes to the client.
    pub(crate) fn say(&self, connection: usize, bytes: &[u8]) {
        self.shared
            .note(connection, ">", &String::from_utf8_lossy(bytes));
        if let Some(stream) = self.stream(connection) {
            // If the client is gone the play will see that by itself.
            let _ = (&*stream).write_all(bytes);
        }
    }

    /// Ends the server's side only; what the client says is still seen.
    pub(crate) fn half_close(&self, connection: usize) {
        self.shared.note(connection, "half-close", "");
        if let Some(stream) = self.stream(connection) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// Ends both sides, with everything sent before delivered.
    pub(crate) fn close(&self, connection: usize) {
        self.shared.note(connection, "close", "");
        if let Some(stream) = self.last_of(connection) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Breaks the connection.
    pub(crate) fn reset(&self, connection: usize) {
        self.shared.note(connection, "reset", "");
        if let Some(stream) = self.last_of(connection) {
            reset(&stream);
        }
    }

    /// All that was seen and said, in order, with times.
    pub(crate) fn log(&self) -> Vec<String> {
        self.shared.log.lock().expect("no holder panics").clone()
    }

    /// Adds a line to the log.
    pub(crate) fn remark(&self, text: &str) {
        self.shared.remark(text);
    }

    /// The connection's socket, unless the server has ended it.
    fn stream(&self, connection: usize) -> Option<Arc<TcpStream>> {
        self.shared.streams()[connection].clone()
    }

    /// The same, and from here on the server has ended it.
    fn last_of(&self, connection: usize) -> Option<Arc<TcpStream>> {
        self.shared.streams()[connection].take()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(listener) = node.listener.take() {
                let _ = listener.shutdown(Shutdown::Both);
            }
        }
        for stream in self.shared.streams().drain(..).flatten() {
            reset(&stream);
        }
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, Vec<Option<Arc<TcpStream>>>> {
        self.connections.lock().expect("no holder panics")
    }

    fn remark(&self, text: &str) {
        let at = self.begin.elapsed().as_secs_f64();
        let line = format!("{at:8.3} {}", text.escape_debug());
        self.log.lock().expect("no holder panics").push(line);
    }

    fn note(&self, connection: usize, sign: &str, text: &str) {
        self.remark(&format!(
            "({connection}) {sign} {}",
            text.trim_end_matches('\n')
        ));
    }

    fn tell(&self, what: What) {
        // Without a receiver the play is over.
        let _ = self.events.send(Event {
            at: Instant::now(),
            what,
        });
    }
}

fn accept(node: usize, listener: &Socket, behaviour: Arc<Mutex<Behaviour>>, shared: &Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept() {
        let stream = TcpStream::from(socket);
        if behaviour.lock().expect("no holder panics").door == Door::Drop {
            reset(&stream);
            drop(stream);
            shared.remark(&format!("node {node}: a connection, dropped"));
            shared.tell(What::Connected {
                node,
                connection: None,
            });
            continue;
        }
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let connection = {
            let mut connections = shared.streams();
            connections.push(Some(stream.clone()));
            connections.len() - 1
        };
        shared.note(connection, "accepted by node", &node.to_string());
        shared.tell(What::Connected {
            node,
            connection: Some(connection),
        });
        let (behaviour, shared) = (behaviour.clone(), shared.clone());
        thread::spawn(move || read(connection, &stream, &behaviour, &shared));
    }
}

fn read(connection: usize, mut stream: &TcpStream, behaviour: &Mutex<Behaviour>, shared: &Shared) {
    let mut pending = Vec::new();
    let mut chunk = [0; 4096];
    let mut first = true;
    loop {
        let length = match stream.read(&mut chunk) {
            Ok(0) => {
                shared.note(connection, "ended by client", "");
                return shared.tell(What::Ended {
                    connection,
                    reset: false,
                });
            }
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                shared.note(connection, "reset by client", "");
                return shared.tell(What::Ended {
                    connection,
                    reset: true,
                });
            }
        };
        pending.extend_from_slice(&chunk[..length]);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&pending[..end]).into_owned();
            pending.drain(..=end);
            shared.note(connection, "<", &line);
            let own = own_answer(&behaviour.lock().expect("no holder panics"), &line, first);
            match own {
                None => shared.tell(What::Line { connection, line }),
                Some(answer) => {
                    let refused = answer
                        .as_ref()
                        .is_some_and(|answer| answer.starts_with("E "));
                    if let Some(answer) = answer {
                        shared.note(connection, "> (by itself)", &answer);
                        let _ = stream.write_all(format!("{answer}\n").as_bytes());
                    }
                    if first {
                        shared.tell(What::Hello { connection, line });
                        if refused {
                            let _ = stream.shutdown(Shutdown::Both);
                            return;
                        }
                    }
                }
            }
            first = false;
        }
    }
}

/// What the stage does about a line by itself, if it does: perhaps nothing, perhaps an answer.
fn own_answer(behaviour: &Behaviour, line: &str, first: bool) -> Option<Option<String>> {
    if first && line.starts_with("H ") {
        return behaviour.hello.clone().map(Some);
    }
    if line == "P" || line.starts_with("P ") {
        return behaviour.pings.then(|| Some(line.to_owned()));
    }
    let (_, automatic) = behaviour
        .automatic
        .iter()
        .find(|(letter, _)| line.starts_with(*letter))?;
    let fields: Vec<&str> = line.split(' ').collect();
    let (letter, key) = (fields[0], fields.get(1).unwrap_or(&"-"));
    let tag = fields
        .last()
        .filter(|field| field.starts_with('#'))
        .unwrap_or(&"");
    let answer = match automatic {
        Automatic::Words(words) => format!("{letter} {key} {words} {tag}"),
        Automatic::Moved(address) => format!("M {letter} {key} {address} {tag}"),
        Automatic::Refused(code) => format!("E {letter} {key} {code} {tag} refused by the play"),
        Automatic::Silence => return Some(None),
    };
    Some(Some(answer.trim_end().to_owned()))
}

fn reusable_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Closing with no time to linger sends RST. The last handle is the reader's, which this wakes.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Read);
}
