//! Bytes between a client's session and its sockets. Whoever makes bytes writes them if nobody else is writing to that socket;
//! who is writing looks for more before it ends, so what is ready together leaves together.

use super::core::{After, Core, Line, Reader};
use super::driver::Driver;
use super::driver::clock;
use super::driver::dial::{failure_of, plain};
use super::driver::look::Look;
use super::driver::socket::{Got, Socket};
use super::event_loop::EventLoop;
use super::instance::{Instance, Writer};
use super::session::{ConnectionId, Failure, Micros};
use crate::tls::Channel;
use mio::Interest;
use std::io;
use std::sync::{Arc, MutexGuard};

/// Of much that was read so many bytes are handled at once.
const PORTION: usize = 2048;

/// The driver takes a socket back that blocking calls have not used for this long, and all of them where the event loop has not turned.
const TAKE_BACK_AFTER: Micros = 20_000;

impl Instance {
    /// The driver has made a connection.
    pub(crate) fn connected(
        &self,
        connection: ConnectionId,
        stream: mio::net::TcpStream,
        channel: Option<Channel>,
    ) {
        let token = Driver::token(self.number(), connection.index);
        let watched = Socket::new(stream, channel, token).and_then(|socket| {
            socket.watch(&self.driver.registry, Interest::READABLE)?;
            if let Some(event_loop) = &self.event_loop {
                socket.watch(&event_loop.registry, Interest::READABLE)?;
            }
            Ok(Arc::new(socket))
        });
        let now = clock::now();
        let mut core = self.lock();
        match watched {
            Ok(socket) => {
                let index = connection.index as usize;
                if core.lines.len() <= index {
                    core.lines.resize_with(index + 1, || None);
                }
                core.session.handle_connected(connection, now);
                if core.session.is_current(connection) {
                    core.lines[index] = Some(Line {
                        socket,
                        epoch: connection.epoch,
                        reader: Reader::Driver,
                        look: Look::new(),
                        watched: Some(Interest::READABLE),
                        writing: false,
                        blocked: false,
                        unsent: Vec::new(),
                        spare: Vec::new(),
                    });
                } else {
                    self.unwatch(&socket);
                }
            }
            Err(error) => {
                let text = plain(&error);
                core.session.handle_connect_failed(connection, text, now);
            }
        }
        self.finish(core, After::default(), Writer::Caller, now);
    }

    /// The driver could not make a connection.
    pub(crate) fn connect_failed(&self, connection: ConnectionId, failure: impl Into<Failure>) {
        let now = clock::now();
        let mut core = self.lock();
        core.session.handle_connect_failed(connection, failure, now);
        self.finish(core, After::default(), Writer::Caller, now);
    }

    /// Writes what a connection has to say, unless somebody is at it.
    pub(super) fn write<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        index: u32,
        after: &mut After,
        now: Micros,
    ) -> MutexGuard<'a, Core> {
        let Some(Some(line)) = core.lines.get_mut(index as usize) else {
            return core;
        };
        if line.writing || line.blocked {
            return core;
        }
        let id = ConnectionId {
            index,
            epoch: line.epoch,
        };
        let mut buffer = std::mem::take(&mut line.spare);
        loop {
            debug_assert!(buffer.is_empty(), "a spare buffer is empty");
            core.session.take_outgoing(id, &mut buffer);
            let Some(line) = core.line(id) else {
                return core;
            };
            if buffer.is_empty() {
                line.writing = false;
                line.spare = buffer;
                return core;
            }
            line.writing = true;
            if let Reader::Nobody(_) = line.reader {
                // The answer is not that of a blocking call, which would be the reader by now.
                line.give_to_driver(&self.driver.registry);
            }
            let socket = line.socket.clone();
            drop(core);
            let written = write_all(&socket, &buffer);
            core = self.lock();
            let Some(line) = core.line(id) else {
                return core;
            };
            match written {
                Ok(written) if written == buffer.len() => buffer.clear(),
                Ok(written) => {
                    line.writing = false;
                    line.block(buffer.split_off(written), &self.driver.registry);
                    return core;
                }
                Err(error) => {
                    line.writing = false;
                    let text = format!("writing failed: {}", plain(&error));
                    core.session.handle_closed(id, text, now);
                    core.settle(after, now);
                    return core;
                }
            }
        }
    }

    /// The driver hears that a socket takes bytes again.
    pub(crate) fn handle_writable(&self, index: u32) {
        let now = clock::now();
        let mut core = self.lock();
        let Some(Some(line)) = core.lines.get_mut(index as usize) else {
            return;
        };
        if !line.blocked {
            return;
        }
        let id = ConnectionId {
            index,
            epoch: line.epoch,
        };
        match write_all(&line.socket, &line.unsent) {
            Ok(written) if written == line.unsent.len() => {
                line.unsent = Vec::new();
                line.blocked = false;
                line.watch(&self.driver.registry);
                core.writes.push(index);
            }
            Ok(written) => {
                line.unsent.drain(..written);
            }
            Err(error) => {
                let text = format!("writing failed: {}", plain(&error));
                core.session.handle_closed(id, text, now);
            }
        }
        self.finish(core, After::default(), Writer::Caller, now);
    }

    /// The driver hears that there is something to read.
    pub(crate) fn handle_readable(&self, index: u32, buffer: &mut [u8], ended: bool) {
        self.read_line(index, buffer, Reader::DriverNow, ended);
    }

    /// The event loop hears that there is something to read.
    pub(crate) fn handle_readable_by_loop(&self, index: u32, buffer: &mut [u8], ended: bool) {
        self.read_line(index, buffer, Reader::LoopNow, ended);
    }

    /// Reads what is there; with `ended` to the end that the server has made, of which nothing is told again.
    fn read_line(&self, index: u32, buffer: &mut [u8], this: Reader, ended: bool) {
        let mut core = self.lock();
        loop {
            let Some(Some(line)) = core.lines.get_mut(index as usize) else {
                return;
            };
            let before = line.reader;
            match (before, this) {
                (Reader::Driver, _) | (Reader::Loop | Reader::Nobody(_), Reader::LoopNow) => {}
                // Somebody else is at it, and watches it too: what comes while he reads he hears of.
                _ => return,
            }
            line.reader = this;
            let id = ConnectionId {
                index,
                epoch: line.epoch,
            };
            let socket = line.socket.clone();
            drop(core);
            let Got { read, more: full } = socket.read(buffer);
            core = self.lock();
            let mut after = After::default();
            let mut used = 0;
            if let (Ok(read), Reader::DriverNow) = (&read, this) {
                (core, used) = self.take_portions(core, id, &buffer[..*read], &mut after);
            }
            let now = clock::now();
            match core.line(id) {
                Some(line) => {
                    line.reader = match before {
                        Reader::Loop | Reader::Nobody(_) => Reader::Loop,
                        driver => driver,
                    };
                    if this == Reader::LoopNow {
                        line.watch_again(&self.driver.registry);
                    }
                }
                None => return self.finish(core, after, Writer::Caller, clock::now()),
            }
            let read = read.map(|read| read - used);
            let more = self.take_read(&mut core, id, &socket, read, &mut buffer[used..], now);
            self.finish(core, after, Writer::Caller, now);
            // The system tells of each arrival, so what comes after a short read makes an event of its own.
            if !more || !(full || ended) || !self.is_of_this_process() {
                return;
            }
            core = self.lock();
        }
    }

    /// Gives the session all but the last portion of much that was read, and calls back after each portion: so what
    /// these callers begin next finds in the processor's caches what the replies have just touched. Whoever is woken and not called is
    /// woken at the end, so that other threads do not come for the lock meanwhile. Says how much was taken.
    fn take_portions<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        id: ConnectionId,
        bytes: &[u8],
        after: &mut After,
    ) -> (MutexGuard<'a, Core>, usize) {
        let mut used = 0;
        while let Some(portion) = bytes[used..].get(..PORTION) {
            let lines = portion.iter().rposition(|byte| *byte == b'\n');
            let Some(last) = lines.filter(|last| used + last + 1 < bytes.len()) else {
                break;
            };
            let now = clock::now();
            let lines = &portion[..=last];
            used += lines.len();
            core.session.handle_bytes(id, lines, now);
            core.settle(after, now);
            if after.calls_back() {
                drop(core);
                after.call_back();
                core = self.lock();
            }
        }
        (core, used)
    }

    /// Gives the session what was read. False if there was nothing to read.
    pub(super) fn take_read(
        &self,
        core: &mut Core,
        id: ConnectionId,
        socket: &Socket,
        read: io::Result<usize>,
        buffer: &mut [u8],
        now: Micros,
    ) -> bool {
        match read {
            Ok(0) => {
                let text = "the server closed the connection".to_owned();
                core.session.handle_closed(id, text, now);
                true
            }
            Ok(read) => {
                core.session.handle_bytes(id, &buffer[..read], now);
                while let Some(held) = socket.read_held(buffer) {
                    core.session.handle_bytes(id, &buffer[..held], now);
                }
                true
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                false
            }
            Err(error) => {
                core.session.handle_closed(id, failure_of(&error), now);
                true
            }
        }
    }

    /// The driver watches the sockets again that blocking calls no longer use.
    pub(super) fn take_back_lines(&self, core: &mut Core, now: Micros) {
        if core.look_at.is_none_or(|at| at > now) {
            return;
        }
        core.look_at = None;
        let event_loop = self.event_loop.as_ref();
        let turned_at = event_loop.map_or(0, |event_loop| event_loop.turned_at());
        let turned_at = turned_at.max(core.lent_at);
        let mut next: Option<Micros> = None;
        for line in core.lines.iter_mut().flatten() {
            let since = match line.reader {
                Reader::Nobody(since) => since,
                Reader::Loop => turned_at,
                Reader::LoopNow => now,
                Reader::Driver | Reader::DriverNow | Reader::Caller => continue,
            };
            let at = since + TAKE_BACK_AFTER;
            if at <= now {
                line.give_to_driver(&self.driver.registry);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        core.look_at = next;
    }
}

impl Instance {
    /// An operation begins on the event loop's own thread. If the loop has turned since it was lent the sockets last, it alone reads them for
    /// a while. If not, it is called and the driver reads on: that something is started says nothing of when the loop comes by.
    pub(super) fn lend_lines(&self, core: &mut Core, event_loop: &EventLoop, now: Micros) {
        let Some(turn) = event_loop.turn_of_this_thread() else {
            return;
        };
        let turned = std::mem::replace(&mut core.lent_for, turn) != turn;
        for line in core.lines.iter_mut().flatten() {
            match line.reader {
                Reader::Driver | Reader::Nobody(_) if line.blocked => {}
                Reader::Driver | Reader::Nobody(_) if !turned => event_loop.call(),
                Reader::Driver | Reader::Nobody(_) => {
                    line.reader = Reader::Loop;
                    core.lent_at = now;
                    line.watch(&self.driver.registry);
                    // The loop hears again of what is there already: it may have left that to the driver.
                    let again = line
                        .socket
                        .watch_again(&event_loop.registry, Interest::READABLE);
                    if again.is_ok() {
                        core.look_at.get_or_insert(now + TAKE_BACK_AFTER);
                    } else {
                        line.give_to_driver(&self.driver.registry);
                    }
                }
                Reader::Loop | Reader::LoopNow | Reader::DriverNow | Reader::Caller => {}
            }
        }
    }

    /// Writes what every connection has to say.
    pub(super) fn write_lines(&self) {
        let now = clock::now();
        let mut core = self.lock();
        core.write_all_lines();
        self.finish(core, After::default(), Writer::Caller, now);
    }

    /// Nobody watches a socket any more that is about to be closed.
    pub(super) fn unwatch(&self, socket: &Socket) {
        socket.unwatch(&self.driver.registry);
        if let Some(event_loop) = &self.event_loop {
            socket.unwatch(&event_loop.registry);
        }
    }
}

impl Core {
    /// Every connection may have something to say.
    pub(super) fn write_all_lines(&mut self) {
        let lines = self.lines.iter().enumerate();
        let open = lines.filter(|(_, line)| line.is_some());
        self.writes.clear();
        self.writes.extend(open.map(|(index, _)| index as u32));
    }

    /// A blocking call has read its answer; the next one is expected soon.
    pub(super) fn leave_line(&mut self, id: ConnectionId, registry: &mio::Registry, now: Micros) {
        let quiet = self.session.under_way(id) == 0;
        let Some(line) = self.line(id) else {
            return;
        };
        if quiet {
            line.reader = Reader::Nobody(now);
            self.look_after(now);
        } else {
            line.give_to_driver(registry);
        }
    }

    /// The driver looks before long whether others still do what was left to them.
    pub(super) fn look_after(&mut self, now: Micros) {
        self.look_at.get_or_insert(now + TAKE_BACK_AFTER);
    }
}

impl Line {
    /// The driver reads this socket from now on; it hears at once of what is already there.
    pub(super) fn give_to_driver(&mut self, registry: &mio::Registry) {
        self.reader = Reader::Driver;
        self.watch(registry);
    }

    /// Lets the driver hear of what concerns it: of bytes if it is the reader, and of room for bytes
    /// if the kernel took no more.
    pub(super) fn watch(&mut self, registry: &mio::Registry) {
        let reads = matches!(self.reader, Reader::Driver | Reader::DriverNow);
        let wanted = match (reads, self.blocked) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        // If the system refuses, the connection's probe will find it silent and give it up.
        let _ = match (self.watched, wanted) {
            (before, wanted) if before == wanted => Ok(()),
            (_, None) => {
                self.socket.unwatch(registry);
                Ok(())
            }
            (None, Some(wanted)) => self.socket.watch(registry, wanted),
            (Some(_), Some(wanted)) => self.socket.watch_again(registry, wanted),
        };
        self.watched = wanted;
    }

    /// The event loop has read: what the driver passed over meanwhile, it hears of again.
    fn watch_again(&mut self, registry: &mio::Registry) {
        self.watch(registry);
        if self.reader == Reader::Driver
            && let Some(interest) = self.watched
        {
            let _ = self.socket.watch_again(registry, interest);
        }
    }

    /// The kernel takes no more: the driver goes on when it does.
    fn block(&mut self, rest: Vec<u8>, registry: &mio::Registry) {
        self.unsent = rest;
        self.blocked = true;
        self.watch(registry);
    }
}

/// Writes until the kernel takes no more.
fn write_all(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match socket.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
