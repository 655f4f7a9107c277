//! One connection of the load: buffers around a socket.

use crate::exit::{self, Failure};
use fairlock::protocol::{Hello, NameRef, Reply, Request, Role, SecretRef, Split, split};
use fairlock::tls::{Channel, Connector, Progress, with_room};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How much is read at once.
const READ: usize = 64 << 10;

/// A connection with what was received and not understood yet, and what is to be sent.
pub(super) struct Link {
    stream: TcpStream,
    channel: Option<Channel>,
    received: Vec<u8>,
    to_send: Vec<u8>,
    sent: usize,
}

/// What a read gave.
#[derive(PartialEq, Eq)]
pub(super) enum Got {
    Bytes,
    Nothing,
    End,
}

impl Link {
    /// Connects, says hello and waits until the node has said that it serves.
    pub(super) fn open(
        address: &str,
        secret: Option<&[u8]>,
        connector: Option<&Connector>,
    ) -> Result<Link, Failure> {
        let connected = Link::connect(address).and_then(|mut link| {
            if let Some(connector) = connector {
                link.secure(address, connector)?;
            }
            Ok(link)
        });
        let mut link = connected.map_err(|error| {
            Failure::new(
                exit::UNREACHABLE,
                format_args!("cannot connect to {address}: {error}"),
            )
        })?;
        link.greet(secret, address)?;
        Ok(link)
    }

    fn connect(address: &str) -> io::Result<Link> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for candidate in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
                    return Ok(Link {
                        stream,
                        channel: None,
                        received: Vec::new(),
                        to_send: Vec::new(),
                        sent: 0,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Does the handshake of TLS.
    fn secure(&mut self, address: &str, connector: &Connector) -> io::Result<()> {
        let mut channel = connector.channel(address).map_err(io::Error::other)?;
        let stream = &self.stream;
        let progress = channel.handshake(
            |room| { stream }.read(room),
            |records| { stream }.write(records),
        )?;
        if progress != Progress::Done {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no answer to the TLS handshake",
            ));
        }
        self.channel = Some(channel);
        Ok(())
    }

    fn greet(&mut self, secret: Option<&[u8]>, address: &str) -> Result<(), Failure> {
        let mut name = Vec::new();
        NameRef::encode(b"fairlock bench", &mut name);
        let mut spelling = Vec::new();
        if let Some(secret) = secret {
            SecretRef::encode(secret, &mut spelling);
        }
        self.push(&Request::Hello(Hello {
            name: NameRef::parse(&name).ok(),
            auth: SecretRef::parse(&spelling).ok(),
            ..Hello::default()
        }));
        let silent = || Failure::new(exit::UNREACHABLE, format_args!("{address} does not answer"));
        self.flush().map_err(|_| silent())?;
        let mut outcome = None;
        while outcome.is_none() {
            match self.read() {
                Ok(Got::Bytes) => self.each_line(|reply| outcome = Some(welcome(reply, address))),
                _ => return Err(silent()),
            }
        }
        outcome.unwrap_or_else(|| Err(silent()))
    }

    /// Sets how long a read may wait: not at all, or for a while.
    pub(super) fn set_patience(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_nonblocking(limit.is_none())?;
        self.stream.set_read_timeout(limit)
    }

    /// Puts a request behind those that are to be sent.
    pub(super) fn push(&mut self, request: &Request<'_>) {
        request.encode(&mut self.to_send);
    }

    /// Whether something is to be sent.
    pub(super) fn has_to_send(&self) -> bool {
        self.sent < self.to_send.len()
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.has_to_send() {
            let rest = &self.to_send[self.sent..];
            let written = match &mut self.channel {
                Some(channel) => channel.write(rest, |records| self.stream.write(records)),
                None => self.stream.write(rest),
            };
            match written {
                Ok(0) => return Ok(()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.to_send.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once.
    pub(super) fn read(&mut self) -> io::Result<Got> {
        if self.channel.is_some() {
            return self.read_records();
        }
        let length = self.received.len();
        self.received.resize(length + READ, 0);
        let result = self.stream.read(&mut self.received[length..]);
        let count = *result.as_ref().unwrap_or(&0);
        self.received.truncate(length + count);
        match result {
            Ok(0) => Ok(Got::End),
            Ok(_) => Ok(Got::Bytes),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(Got::Nothing),
                _ => Err(error),
            },
        }
    }

    fn read_records(&mut self) -> io::Result<Got> {
        let Some(channel) = &mut self.channel else {
            return Ok(Got::Nothing);
        };
        let length = self.received.len();
        self.received.resize(length + READ, 0);
        let buffer = &mut self.received[length..];
        let stream = &mut self.stream;
        let result = with_room(|room| match stream.read(room.receive()) {
            Ok(0) => Ok(None),
            Ok(count) => channel.take(room, count, buffer).map(Some),
            Err(error) => Err(error),
        });
        let count = result.as_ref().map_or(0, |count| count.unwrap_or(0));
        self.received.truncate(length + count);
        while channel.holds_plain() {
            let length = self.received.len();
            self.received.resize(length + READ, 0);
            let count = channel.take_plain(&mut self.received[length..]);
            self.received.truncate(length + count);
        }
        match result {
            Ok(None) => Ok(Got::End),
            Ok(Some(_)) if self.received.is_empty() => Ok(Got::Nothing),
            Ok(Some(_)) => Ok(Got::Bytes),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(Got::Nothing),
                _ => Err(error),
            },
        }
    }

    /// Gives each whole line that was received to `handle`; `None` stands for one that is no reply.
    pub(super) fn each_line(&mut self, mut handle: impl FnMut(Option<Reply<'_>>)) {
        let mut start = 0;
        loop {
            match split(&self.received[start..]) {
                Split::Line { line, used } => {
                    handle(Reply::parse(line));
                    start += used;
                }
                Split::Partial => break,
                Split::TooLong => {
                    handle(None);
                    start = self.received.len();
                    break;
                }
            }
        }
        self.received.drain(..start);
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What the first line of the node says about whether it can be measured.
fn welcome(reply: Option<Reply<'_>>, address: &str) -> Result<(), Failure> {
    match reply {
        Some(Reply::Hello(hello)) if hello.role == Role::Active => Ok(()),
        Some(Reply::Hello(hello)) => Err(Failure::new(
            exit::UNREACHABLE,
            format_args!(
                "{address} is {} and serves nobody; the active node is {}",
                hello.role,
                hello.active.unwrap_or("not known to it")
            ),
        )),
        Some(Reply::Refused { code, text, .. }) => Err(Failure::new(
            exit::REFUSED,
            format_args!("{address} refuses ({code}): {text}"),
        )),
        _ => Err(Failure::new(
            exit::FAILED,
            format_args!("{address} does not speak this protocol"),
        )),
    }
}
