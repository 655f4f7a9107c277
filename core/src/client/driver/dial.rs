//! Connections that are being made: names are looked up on a thread of their own, then each address of the
//! name is tried in turn, the handshake of TLS included.

use super::socket::Socket;
use super::{Command, DIAL, Driver, clock};
use crate::background;
use crate::client::address::Address;
use crate::client::instance::Instance;
use crate::client::session::{ConnectionId, Failure, Micros};
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
    failures: Vec<Failure>,
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
        let thread = background::spawn("fairlock-lookup", lookup);
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
                Err(error) => others.note(address, plain(&error).into()),
            }
        }
        client.connect_failed(connection, Failure::of_all(others.failures));
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
            Err(failure) => self.fail(number, failure, driver),
        }
    }

    fn fail(&mut self, number: usize, failure: Failure, driver: &Driver) {
        let Some(mut dial) = self.dials.remove(&number) else {
            return;
        };
        let _ = driver.registry.deregister(&mut dial.stream);
        drop(dial.stream);
        dial.others.note(dial.address, failure);
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
            let failure = if opening {
                Failure::of_tls("connected, but no answer to the TLS handshake")
            } else {
                "no answer".to_owned().into()
            };
            self.fail(number, failure, driver);
        }
    }
}

impl Dial {
    /// Goes on as far as the socket allows; whether the connection can be used.
    fn advance(&mut self, token: Token, registry: &mio::Registry) -> Result<bool, Failure> {
        if self.channel.is_none() {
            match Socket::dialled(&self.stream) {
                None => return Ok(false),
                Some(Err(error)) => return Err(plain(&error).into()),
                Some(Ok(())) => {}
            }
            let Some(connector) = self.client.connector() else {
                return Ok(true);
            };
            let channel = connector.channel(self.others.server.as_str());
            self.channel = Some(channel.map_err(Failure::of_tls)?);
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
            Err(error) => Err(failure_of(&error).told(|text| self.with_complaint(text))),
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

    fn note(&mut self, address: SocketAddr, failure: Failure) {
        self.failures.push(if self.named {
            failure.told(|text| format!("{address}: {text}"))
        } else {
            failure
        });
    }
}

/// What an error of a channel says. A socket without TLS has none of the two kinds that TLS gives its own errors.
pub(crate) fn failure_of(error: &io::Error) -> Failure {
    let text = plain(error);
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Failure::of_tls(text),
        _ => text.into(),
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
