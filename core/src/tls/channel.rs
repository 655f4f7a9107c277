//! One connection's TLS: what comes from the socket goes in, plain bytes come out, and the other way round.

use super::Progress;
use super::explain::explain;
use rustls::Connection;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};

/// How much is read from a socket at once.
const RECEIVE: usize = 64 << 10;
/// Plain bytes of one record.
const RECORD: usize = 16 << 10;

/// Where records are read into, one for each thread, so that no connection needs one.
pub struct Room(Vec<u8>);

impl Room {
    /// Where the socket is to be read into.
    pub fn receive(&mut self) -> &mut [u8] {
        // Zeroed pages, which the system lends only when they are used.
        if self.0.is_empty() {
            self.0 = vec![0; RECEIVE];
        }
        &mut self.0
    }
}

thread_local! {
    static ROOM: RefCell<Room> = const { RefCell::new(Room(Vec::new())) };
}

/// Lends the thread's room.
pub fn with_room<R>(read: impl FnOnce(&mut Room) -> R) -> R {
    ROOM.with_borrow_mut(read)
}

/// One connection's TLS, between the bytes of the socket and plain ones.
pub struct Channel {
    connection: Connection,
    /// What was decrypted and had no room where it was asked for.
    plain: Vec<u8>,
    /// How many plain bytes of those that nobody has been told to have left are on their way. They make one record.
    carried: usize,
    /// The other side has said that nothing more comes, or what it said made no sense.
    ended: bool,
    closing: bool,
}

impl Channel {
    pub(super) fn new(connection: impl Into<Connection>) -> Channel {
        Channel {
            connection: connection.into(),
            plain: Vec::new(),
            carried: 0,
            ended: false,
            closing: false,
        }
    }

    /// Goes on with the handshake as far as the socket allows.
    ///
    /// # Errors
    /// The socket's, or why the other side is not accepted or does not accept this one. The text is for people.
    pub fn handshake(
        &mut self,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        loop {
            if !self.flush(&mut send)? {
                return Ok(Progress::Writes);
            }
            if !self.connection.is_handshaking() {
                return Ok(Progress::Done);
            }
            let step = with_room(|room| match receive(room.receive()) {
                Ok(0) => Err(self.early_end()),
                Ok(count) => self.take(room, count, &mut []).map(|_| true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
                Err(error) => Err(error),
            });
            match step {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::Reads),
                Err(error) => {
                    // The other side is told why, if its socket takes it at once.
                    let _ = self.flush(&mut send);
                    return Err(error);
                }
            }
        }
    }

    /// Whether decrypted bytes wait to be taken. They make no socket readable.
    #[must_use]
    pub fn holds_plain(&self) -> bool {
        !self.plain.is_empty()
    }

    /// How many decrypted bytes wait to be taken.
    #[must_use]
    pub fn plain_bytes(&self) -> usize {
        self.plain.len()
    }

    /// Gives decrypted bytes that wait to be taken.
    pub fn take_plain(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.plain.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.plain[..count]);
        if count == self.plain.len() {
            self.plain = Vec::new();
        } else {
            self.plain.drain(..count);
        }
        count
    }

    /// Whether the other side has said that nothing more comes, or what it said made no sense.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Decrypts what was received into the thread's room, and says how many plain bytes are in `buffer` now. What does
    /// not fit [waits](Channel::holds_plain). None may have come although records did.
    ///
    /// # Errors
    /// What came cannot have been sent by the other side. Where good bytes came before that, they are given first, and
    /// then the channel [has ended](Channel::has_ended).
    pub fn take(
        &mut self,
        room: &mut Room,
        received: usize,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        debug_assert!(self.plain.is_empty(), "what waits is taken first");
        let mut records = &room.0[..received];
        let mut filled = 0;
        while !records.is_empty() && !self.ended {
            // Nothing is left of the plain bytes before, so there is always room for records.
            self.connection.read_tls(&mut records)?;
            let outcome = self.connection.process_new_packets();
            match &outcome {
                Ok(state) => {
                    self.ended = state.peer_has_closed();
                    let more = state.plaintext_bytes_to_read();
                    filled += self.deliver(more, &mut buffer[filled..])?;
                }
                Err(_) => {
                    self.ended = true;
                    // How much of it was good before is not said here; it ends with an error.
                    let mut good = Vec::new();
                    let _ = self.connection.reader().read_to_end(&mut good);
                    let fits = good.len().min(buffer.len() - filled);
                    let fits = if self.plain.is_empty() { fits } else { 0 };
                    buffer[filled..filled + fits].copy_from_slice(&good[..fits]);
                    self.plain.extend_from_slice(&good[fits..]);
                    filled += fits;
                }
            }
            if let Err(failure) = outcome
                && filled == 0
            {
                let text = explain(&failure, self.is_client());
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(filled)
    }

    /// Moves plain bytes from rustls to where they were asked for, and what does not fit aside.
    fn deliver(&mut self, count: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.connection.reader();
        let fits = if self.plain.is_empty() {
            count.min(buffer.len())
        } else {
            0
        };
        reader.read_exact(&mut buffer[..fits])?;
        if fits < count {
            let held = self.plain.len();
            self.plain.resize(held + count - fits, 0);
            reader.read_exact(&mut self.plain[held..])?;
        }
        Ok(fits)
    }

    /// Writes what the socket takes now of `bytes`, and says how many of them have left, in whole records. Those behind them
    /// have to be given again, as the first ones: part of them may be on its way.
    ///
    /// # Errors
    /// The socket's.
    pub fn write(
        &mut self,
        bytes: &[u8],
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            if !self.flush(&mut send)? {
                return Ok(taken);
            }
            taken += std::mem::take(&mut self.carried);
            let rest = &bytes[taken..];
            if rest.is_empty() {
                return Ok(taken);
            }
            let piece = &rest[..rest.len().min(RECORD)];
            self.carried = self.connection.writer().write(piece)?;
        }
    }

    /// Tells the other side that nothing more comes. Whether all has left; called again until then.
    ///
    /// # Errors
    /// The socket's.
    pub fn close(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        if !std::mem::replace(&mut self.closing, true) {
            self.connection.send_close_notify();
        }
        self.flush(&mut send)
    }

    /// Sends what rustls has; whether nothing is left.
    fn flush(&mut self, send: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        let mut socket = Sender(send);
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut socket) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn is_client(&self) -> bool {
        matches!(self.connection, Connection::Client(_))
    }

    fn early_end(&self) -> io::Error {
        let text = if self.is_client() {
            "the server ended the connection in the TLS handshake; does it speak TLS?"
        } else {
            "the client ended the connection in the TLS handshake"
        };
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("handshaking", &self.connection.is_handshaking())
            .finish_non_exhaustive()
    }
}

/// A socket as rustls wants to see it: several messages leave in one write.
struct Sender<'a, F>(&'a mut F);

impl<F: FnMut(&[u8]) -> io::Result<usize>> Write for Sender<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [one] => self.write(one),
            many => {
                let mut all = Vec::new();
                many.iter().for_each(|slice| all.extend_from_slice(slice));
                self.write(&all)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, feature = "server"))]
pub(super) mod tests {
    use super::*;
    use crate::tls::{Acceptor, ClientFiles, Connector, ServerFiles};
    use rcgen::{CertificateParams, KeyPair};
    use std::collections::VecDeque;

    /// A wire that takes as many bytes as it is told to, and gives as many at a time as are asked for.
    #[derive(Default)]
    struct Wire {
        bytes: VecDeque<u8>,
        room: usize,
    }

    impl Wire {
        fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.bytes.extend(&bytes[..count]);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(count)
        }

        fn receive(&mut self, buffer: &mut [u8], most: usize) -> io::Result<usize> {
            let count = buffer.len().min(most).min(self.bytes.len());
            for (place, byte) in buffer.iter_mut().zip(self.bytes.drain(..count)) {
                *place = byte;
            }
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(count)
        }
    }

    /// A server's identity, and a client that trusts it. `name` is for no other test of the process.
    pub(crate) fn ends(name: &str) -> (Acceptor, Connector) {
        let folder = format!("fairlock-ends-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let [certificate, key] = ["cert", "key"].map(|name| folder.join(name));
        let own = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let pem = params.self_signed(&own).expect("a certificate").pem();
        std::fs::write(&certificate, pem).expect("written");
        std::fs::write(&key, own.serialize_pem()).expect("written");
        let acceptor = Acceptor::new(ServerFiles {
            certificate: certificate.clone(),
            key,
            clients: None,
        });
        let files = ClientFiles {
            authorities: Some(certificate),
            identity: None,
        };
        let connector = Connector::new(files, None).expect("a CA");
        let _ = std::fs::remove_dir_all(&folder);
        (acceptor.expect("an identity"), connector)
    }

    /// Both ends, with a handshake behind them that went through `step` bytes at a time.
    pub(crate) fn pair(step: usize) -> (Channel, Channel) {
        let (acceptor, connector) = ends(&format!("pair-{step}"));
        let mut server = acceptor.channel().expect("a channel");
        let mut client = connector.channel("localhost:1").expect("a channel");
        let (mut up, mut down) = (Wire::default(), Wire::default());
        let mut done = (false, false);
        while done != (true, true) {
            (up.room, down.room) = (step, step);
            let receive = |wire: &mut Wire, buffer: &mut [u8]| wire.receive(buffer, step);
            let progress = client.handshake(|buffer| receive(&mut down, buffer), |b| up.send(b));
            done.0 = progress.expect("it goes on") == Progress::Done;
            let progress = server.handshake(|buffer| receive(&mut up, buffer), |b| down.send(b));
            done.1 = progress.expect("it goes on") == Progress::Done;
        }
        (client, server)
    }

    #[test]
    fn a_handshake_goes_on_wherever_it_stood_still() {
        for step in [1, 2, 7, 100, 1 << 20] {
            pair(step);
        }
    }

    /// Goal: a byte counts as gone only with the last one of its record, and none leaves twice. Method: a socket that takes
    /// little, and a reader with a small buffer.
    #[test]
    fn what_has_left_is_counted_in_whole_records() {
        let (mut client, mut server) = pair(1 << 20);
        let message: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        let mut wire = Wire::default();
        let (mut gone, mut heard) = (0, Vec::new());
        while gone < message.len() {
            wire.room = 1000;
            let count = client.write(&message[gone..], |records| wire.send(records));
            gone += count.expect("the wire lives");
            assert!(gone == message.len() || gone % RECORD == 0, "{gone}");
            with_room(|room| {
                while let Ok(count) = wire.receive(room.receive(), 300) {
                    let mut buffer = [0; 512];
                    let count = server.take(room, count, &mut buffer).expect("good records");
                    heard.extend_from_slice(&buffer[..count]);
                    while server.holds_plain() {
                        assert!(server.plain_bytes() > 0);
                        let count = server.take_plain(&mut buffer);
                        heard.extend_from_slice(&buffer[..count]);
                    }
                }
            });
            assert_eq!(heard.len(), gone, "what is said to have left can be read");
        }
        assert_eq!(heard, message);
    }

    #[test]
    fn what_somebody_else_puts_in_ends_the_channel_behind_what_was_good() {
        let (mut client, mut server) = pair(1 << 20);
        let mut wire = Wire {
            room: 1 << 20,
            ..Wire::default()
        };
        assert_eq!(client.write(b"good", |b| wire.send(b)).ok(), Some(4));
        wire.bytes.extend([0x17, 3, 3, 0, 20]);
        wire.bytes.extend([7; 20]);
        let mut buffer = [0; 64];
        let mut read = || {
            with_room(|room| {
                let count = wire.receive(room.receive(), 1 << 20).unwrap_or(0);
                server.take(room, count, &mut buffer)
            })
        };
        assert_eq!(read().ok(), Some(4));
        assert_eq!(&buffer[..4], b"good");
        assert!(server.has_ended());
    }

    #[test]
    fn a_goodbye_ends_it() {
        let (mut client, mut server) = pair(1 << 20);
        let mut wire = Wire::default();
        assert!(!client.close(|b| wire.send(b)).expect("the wire lives"));
        wire.room = 1000;
        assert!(client.close(|b| wire.send(b)).expect("the wire lives"));
        let mut buffer = [0; 64];
        let count = with_room(|room| {
            let count = wire.receive(room.receive(), 1000).expect("a goodbye");
            server.take(room, count, &mut buffer)
        });
        assert_eq!(count.ok(), Some(0));
        assert!(server.has_ended());
    }
}
