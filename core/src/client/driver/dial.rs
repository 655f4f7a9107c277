//! Connections that are being made: names are looked up on a thread of their own, then each address of the
//! name is tried in turn.

use super::socket::Socket;
use super::{Command, DIAL, Driver, clock};
use crate::client::address::Address;
use crate::client::instance::Instance;
use crate::client::session::{ConnectionId, Micros};
use mio::{Interest, Token};
use std::collections::{BTreeMap, VecDeque};
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
    address: SocketAddr,
    /// When the next address is tried instead.
    until: Micros,
    others: Others,
}

/// The other addresses of a name.
#[derive(Default)]
struct Others {
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
            let others = Others {
                rest: VecDeque::from([literal]),
                until: clock::now() + client.connect_timeout(),
                ..Others::default()
            };
            return self.try_next(client, connection, others, driver);
        }
        let name = address.as_str().to_owned();
        let number = client.number();
        let answer_to = driver.clone();
        let lookup = move || {
            let result = match name.to_socket_addrs() {
                Ok(addresses) => Ok(addresses.collect()),
                Err(error) => Err(format!("the name cannot be looked up: {error}")),
            };
            answer_to.send(Command::Resolved {
                client: number,
                connection,
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
        result: Result<Vec<SocketAddr>, String>,
        driver: &Driver,
    ) {
        match result {
            Err(text) => client.connect_failed(connection, text),
            Ok(addresses) if addresses.is_empty() => {
                client.connect_failed(connection, "the name has no address".to_owned());
            }
            Ok(addresses) => {
                let others = Others {
                    rest: addresses.into(),
                    until: clock::now() + client.connect_timeout(),
                    named: true,
                    ..Others::default()
                };
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
                        address,
                        until: now + share,
                        others,
                    };
                    self.dials.insert(number, dial);
                    return;
                }
                Err(error) => others.note(address, &error.to_string()),
            }
        }
        client.connect_failed(connection, others.failures.join(", "));
    }

    pub(super) fn handle_event(&mut self, token: Token, driver: &Driver) {
        let number = token.0 & !DIAL;
        let Some(dial) = self.dials.get(&number) else {
            return;
        };
        match Socket::dialled(&dial.stream) {
            None => {}
            Some(Ok(())) => {
                if let Some(mut dial) = self.dials.remove(&number) {
                    let _ = driver.registry.deregister(&mut dial.stream);
                    dial.client.connected(dial.connection, dial.stream);
                }
            }
            Some(Err(error)) => self.fail(number, &error.to_string(), driver),
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
            self.fail(number, "no answer", driver);
        }
    }
}

impl Others {
    fn note(&mut self, address: SocketAddr, text: &str) {
        let text = plain(text);
        self.failures.push(if self.named {
            format!("{address}: {text}")
        } else {
            text
        });
    }
}

/// The system's words without its number for them.
pub(crate) fn plain(text: &str) -> String {
    let text = match text.find(" (os error") {
        Some(end) => &text[..end],
        None => text,
    };
    text.to_lowercase()
}
