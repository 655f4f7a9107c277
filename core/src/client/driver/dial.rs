//! Connections that are being made: names are looked up on a thread of their own, then each address of the
//! name is tried in turn, the handshake of TLS included.

use super::socket::Socket;
use super::{Command, DIAL, Driver, clock};
use crate::client::address::Address;
use crate::client::instance::Instance;
use crate::client::session::{ConnectionId, Micros};
use crate::tls::{Channel, Progress};
use mio::{Interest, Token};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Dials {
    last: usize,
    dials: BTreeMap<usize, Dial>,
}

struct Dial {
    client: Arc<Instance>,
    connection: ConnectionId,
    stream: mio::net::TcpStream,
    /// Set from the moment on when the network has connected, where there is TLS.
    channel: Option<Channel>,
    address: SocketAddr,
    /// When the next address is tried instead.
    until: Micros,
    others: Others,
}

/// The other addresses of a name.
struct Others {
    /// The server as the client knows it.
    server: Address,
    rest: VecDeque<SocketAddr>,
    /// By then each of them has had its turn.
    until: Micros,
    /// What went wrong with those before.
    failures: Vec<String>,
    /// They come from a name, so messages say which is meant.
    named: bool,
}

impl Dials {
    /// Begins to connect; the client hears of success or failure.
    pub(super) fn start(
        &mut self,
        client: Arc<Instance>,
        connection: ConnectionId,
        address: &Address,
        driver: &Arc<Driver>,
    ) {
        if let Some(literal) = address.literal() {
            let others = Others::new(&client, address.clone(), [literal].into());
            return self.try_next(client, connection, others, driver);
        }
        let address = address.clone();
        let number = client.number();
        let answer_to = driver.clone();
        let lookup = move || {
            let result = match address.as_str().to_socket_addrs() {
                Ok(addresses) => Ok(addresses.collect()),
                Err(error) => Err(format!("the name cannot be looked up: {error}")),
            };
            answer_to.send(Command::Resolved {
                client: number,
                connection,
                address,
                result,
            });
        };
        // The system's look-up blocks, for many seconds if a name server is silent.
        let thread = std::thread::Builder::new()
            .name("fairlock-lookup".to_owned())
            .spawn(lookup);
        if let Err(error) = thread {
            client.connect_failed(
                connection,
                format!("no thread to look the name up: {error}"),
            );
        }
    }

    /// A name has been looked up.
    pub(super) fn resolved(
        &mut self,
        client: Arc<Instance>,
        connection: ConnectionId,
        address: Address,
        result: Result<Vec<SocketAddr>, String>,
        driver: &Driver,
    ) {
        match result {
            Err(text) => client.connect_failed(connection, text),
            Ok(addresses) if addresses.is_empty() => {
                client.connect_failed(connection, "the name has no address".to_owned());
            }
            Ok(addresses) => {
                let mut others = Others::new(&client, address, addresses.into());
                others.named = true;
                self.try_next(client, connection, others, driver);
            }
        }
    }

    fn try_next(
        &mut self,
        client: Arc<Instance>,
        connection: ConnectionId,
        mut others: Others,
        driver: &Driver,
    ) {
        while let Some(address) = others.rest.pop_front() {
            self.last += 1;
            let number = self.last;
            let stream = Socket::dial(address).and_then(|mut stream| {
                let token = Token(number | DIAL);
                driver
                    .registry
                    .register(&mut stream, token, Interest::WRITABLE)?;
                Ok(stream)
            });
            match stream {
                Ok(stream) => {
                    // Each address gets its share, so that one that is silent leaves time for the others.
                    let now = clock::now();
                    let share = others.until.saturating_sub(now) / (others.rest.len() as u64 + 1);
                    let dial = Dial {
                        client,
                        connection,
                        stream,
                        channel: None,
                        address,
                        until: now + share,
                        others,
                    };
                    self.dials.insert(number, dial);
                    return;
                }
                Err(error) => others.note(address, &plain(&error)),
            }
        }
        client.connect_failed(connection, others.failures.join(", "));
    }

    pub(super) fn handle_event(&mut self, token: Token, driver: &Driver) {
        let number = token.0 & !DIAL;
        let Some(dial) = self.dials.get_mut(&number) else {
            return;
        };
        match dial.advance(token, &driver.registry) {
            Ok(false) => {}
            Ok(true) => {
                if let Some(mut dial) = self.dials.remove(&number) {
                    let _ = driver.registry.deregister(&mut dial.stream);
                    let connection = dial.connection;
                    dial.client.connected(connection, dial.stream, dial.channel);
                }
            }
            Err(text) => self.fail(number, &text, driver),
        }
    }

    fn fail(&mut self, number: usize, text: &str, driver: &Driver) {
        let Some(mut dial) = self.dials.remove(&number) else {
            return;
        };
        let _ = driver.registry.deregister(&mut dial.stream);
        drop(dial.stream);
        dial.others.note(dial.address, text);
        self.try_next(dial.client, dial.connection, dial.others, driver);
    }

    pub(super) fn next_deadline(&self) -> Option<Micros> {
        self.dials.values().map(|dial| dial.until).min()
    }

    pub(super) fn handle_due(&mut self, now: Micros, driver: &Driver) {
        let due = |dials: &BTreeMap<usize, Dial>| {
            let mut late = dials.iter().filter(|(_, dial)| dial.until <= now);
            late.next().map(|(number, _)| *number)
        };
        while let Some(number) = due(&self.dials) {
            let opening = self
                .dials
                .get(&number)
                .is_some_and(|dial| dial.channel.is_some());
            let text = if opening {
                "connected, but no answer to the TLS handshake"
            } else {
                "no answer"
            };
            self.fail(number, text, driver);
        }
    }
}

impl Dial {
    /// Goes on as far as the socket allows; whether the connection can be used.
    fn advance(&mut self, token: Token, registry: &mio::Registry) -> Result<bool, String> {
        if self.channel.is_none() {
            match Socket::dialled(&self.stream) {
                None => return Ok(false),
                Some(Err(error)) => return Err(plain(&error)),
                Some(Ok(())) => {}
            }
            let Some(connector) = self.client.connector() else {
                return Ok(true);
            };
            self.channel = Some(connector.channel(self.others.server.as_str())?);
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry
                .reregister(&mut self.stream, token, interest)
                .map_err(|error| plain(&error))?;
        }
        let Some(channel) = &mut self.channel else {
            return Ok(false);
        };
        let stream = &self.stream;
        let progress = channel.handshake(
            |buffer| { stream }.read(buffer),
            |records| { stream }.write(records),
        );
        match progress {
            Ok(Progress::Done) => Ok(true),
            // It is watched for both.
            Ok(Progress::Reads | Progress::Writes) => Ok(false),
            Err(error) => Err(self.with_complaint(plain(&error))),
        }
    }

    /// Files that cannot be read again may be why a handshake fails.
    fn with_complaint(&self, text: String) -> String {
        match self
            .client
            .connector()
            .and_then(|connector| connector.complaint())
        {
            Some(complaint) => format!("{text} (and a changed file is not used: {complaint})"),
            None => text,
        }
    }
}

impl Others {
    fn new(client: &Instance, server: Address, rest: VecDeque<SocketAddr>) -> Others {
        let mut patience = client.connect_timeout();
        if client.connector().is_some() {
            // So that it is said what was waited for, before the whole try is given up.
            patience -= patience / 16;
        }
        Others {
            server,
            rest,
            until: clock::now() + patience,
            failures: Vec::new(),
            named: false,
        }
    }

    fn note(&mut self, address: SocketAddr, text: &str) {
        let text = text.to_owned();
        self.failures.push(if self.named {
            format!("{address}: {text}")
        } else {
            text
        });
    }
}

/// The system's words without its number for them; other words as they are.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
