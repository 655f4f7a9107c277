//! A client that knows lines and nothing else, and waits for each with a limit.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Far longer than anything takes, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// One connection.
pub struct Peer {
    lines: BufReader<TcpStream>,
}

impl Peer {
    /// Connects.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Peer {
        let socket = TcpStream::connect(address).expect("the node listens");
        socket.set_nodelay(true).expect("a socket has this option");
        socket
            .set_read_timeout(Some(LIMIT))
            .expect("a socket has this option");
        socket
            .set_write_timeout(Some(LIMIT))
            .expect("a socket has this option");
        Peer {
            lines: BufReader::new(socket),
        }
    }

    /// A connection whose hello names an id made of one digit.
    #[must_use]
    pub fn named(address: SocketAddr, digit: char) -> Peer {
        let mut peer = Peer::connect(address);
        let reply = peer.ask(&format!(
            "H 1 id={} name=client-{digit}",
            digit.to_string().repeat(32)
        ));
        assert!(reply.starts_with("H 1 role=active"), "{reply}");
        peer
    }

    /// The socket itself.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        self.lines.get_ref()
    }

    /// The address of this end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket().local_addr().expect("it is connected")
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket().write_all(bytes).expect("the node reads");
    }

    /// Sends one line.
    pub fn say(&mut self, line: &str) {
        self.send(format!("{line}\n").as_bytes());
    }

    /// The next line.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => {
                line.pop();
                line
            }
            Ok(_) => panic!("the connection ended after {line:?}"),
            Err(error) => panic!("no line: {error}"),
        }
    }

    /// Sends a line and hears the next one.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// Waits for the end of the connection, with nothing before it.
    pub fn hear_end(&mut self) {
        let mut rest = Vec::new();
        match self.lines.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// Proves that nothing is on the way: a probe comes back first.
    pub fn hear_nothing(&mut self) {
        assert_eq!(self.ask("P #999999"), "P #999999");
    }

    /// Sends no more.
    pub fn end_sending(&self) {
        self.socket()
            .shutdown(Shutdown::Write)
            .expect("it is connected");
    }

    /// Acquires, and returns the token.
    pub fn acquire(&mut self, line: &str) -> u64 {
        token(&self.ask(line))
    }
}

/// The token of a grant; anything else fails the test.
pub fn token(reply: &str) -> u64 {
    let mut fields = reply.split(' ');
    assert_eq!(fields.next(), Some("A"), "{reply}");
    fields
        .nth(1)
        .and_then(|field| field.parse().ok())
        .unwrap_or_else(|| panic!("{reply}"))
}

/// Asks until the reply is as wanted.
pub fn until(peer: &mut Peer, line: &str, wanted: impl Fn(&str) -> bool) -> String {
    let begin = Instant::now();
    loop {
        let reply = peer.ask(line);
        if wanted(&reply) {
            return reply;
        }
        assert!(begin.elapsed() < LIMIT, "still {reply}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until this many requests wait for the key.
pub fn until_waiting(peer: &mut Peer, key: &str, count: usize) {
    until(peer, &format!("I {key}"), |reply| {
        let fields: Vec<&str> = reply.split(' ').collect();
        let place = if fields[2] == "held" { 5 } else { 3 };
        fields[place] == count.to_string()
    });
}
