//! Blocking calls. Where nobody else uses the connection the calling thread reads its answer from the socket itself,
//! so that one call at a time costs no change of threads; else it sleeps until the driver wakes it.

use super::acquire::OnLost;
use super::calling;
use super::core::{After, Face, Reader};
use super::driver::look::Look;
use super::driver::socket::Socket;
use super::driver::{self, clock};
use super::instance::{Instance, Started, Writer};
use super::session::{Ask, ConnectionId, Micros, OperationId, Outcome};
use crate::error::Error;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// How often a call looks whether it is to go on, and how it asks.
pub(crate) type Check<'a> = Option<(Duration, &'a mut dyn FnMut() -> bool)>;

/// What a thread needs to read the socket itself.
struct Lead {
    connection: ConnectionId,
    socket: Arc<Socket>,
    look: Look,
}

/// What came of reading the socket oneself.
enum Led {
    Done(Result<Outcome, Error>),
    /// The driver reads from here on.
    Leave,
    /// A signal came, or something that was not the answer.
    GoOn,
}

impl Instance {
    /// Does an operation on this thread.
    pub(crate) fn block(
        &self,
        ask: Ask,
        on_lost: Option<OnLost>,
        mut check: Check<'_>,
    ) -> Result<Outcome, Error> {
        let now = clock::now();
        let mut core = self.lock();
        let face = core.insert_face(Face::Waiting(None), on_lost);
        let operation = core.session.ask(ask, face, now);
        let started = Started {
            face,
            operation,
            known: false,
        };
        let mut after = After::default();
        core.settle(&mut after, now);
        let mut result = core.take_result(face);
        if result.is_none() && driver::is_this_thread() {
            core.abandon(face, operation, now);
            result = Some(Err(Error::argument(
                "a blocking call in a callback on the client's own thread would wait for itself; await or submit it there",
            )));
        }
        let lead = match (&result, operation) {
            (None, Some(operation)) => self.take_lead(&mut core, operation),
            _ => None,
        };
        // Who does not read the answer himself is one of many, and so are the bytes.
        let writer = match lead {
            Some(_) => Writer::Caller,
            None => Writer::Either,
        };
        self.finish(core, after, writer, now);
        if let Some(result) = result {
            return result;
        }
        let guard = Guard {
            instance: self,
            started,
        };
        let _pause = calling::pause();
        let result = self.wait(started, lead, now, &mut check);
        std::mem::forget(guard);
        result
    }

    fn wait(
        &self,
        started: Started,
        lead: Option<Lead>,
        since: Micros,
        check: &mut Check<'_>,
    ) -> Result<Outcome, Error> {
        // Else a callback has forked, and the socket is the parent's.
        if let Some(mut lead) = lead.filter(|_| self.is_of_this_process()) {
            let mut since = since;
            loop {
                match self.lead(started, &mut lead, since) {
                    Led::Done(result) => return result,
                    Led::Leave => break,
                    Led::GoOn => {}
                }
                if let Some((_, go_on)) = check {
                    // It may take its time, and others wait for answers on this connection.
                    self.leave(lead.connection);
                    if !go_on() {
                        self.abandon(&started);
                        return Err(Error::cancelled());
                    }
                    break;
                }
                since = clock::now();
            }
        }
        PARKER.with(|waker| self.park(started, waker, check))
    }

    /// Makes this thread the reader of the connection that its operation alone uses.
    fn take_lead(&self, core: &mut super::core::Core, operation: OperationId) -> Option<Lead> {
        let id = core.session.connection_of(operation)?;
        if core.session.under_way(id) != 1 {
            return None;
        }
        let line = core.line(id)?;
        if line.blocked {
            return None;
        }
        match line.reader {
            Reader::Driver | Reader::Nobody(_) | Reader::Loop => {}
            Reader::DriverNow | Reader::LoopNow | Reader::Caller => return None,
        }
        line.reader = Reader::Caller;
        line.watch(&self.driver.registry);
        Some(Lead {
            connection: id,
            socket: line.socket.clone(),
            look: line.look,
        })
    }

    /// Reads once and handles what came, for whomever it is.
    fn lead(&self, started: Started, lead: &mut Lead, since: Micros) -> Led {
        let Lead {
            connection: id,
            ref socket,
            ref mut look,
        } = *lead;
        // Filled with zeros for each read: as small as the answer to one request is.
        let mut buffer = [0; 1024];
        let read = look.read(socket, &mut buffer, since);
        if matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::Interrupted) {
            return Led::GoOn;
        }
        let now = clock::now();
        if read.is_ok() {
            look.answered(now);
        }
        let mut core = self.lock();
        if let Some(line) = core.line(id) {
            line.look = *look;
        }
        let came = self.take_read(&mut core, id, socket, read, &mut buffer, now);
        let mut after = After::default();
        core.settle(&mut after, now);
        let result = core.take_result(started.face);
        let elsewhere = match started.operation {
            Some(operation) => core.session.connection_of(operation) != Some(id),
            None => true,
        };
        let led = match result {
            Some(result) => Led::Done(result),
            // Nor does it read while it runs callbacks of others, which may take their time.
            None if !came || elsewhere || after.calls_back() => Led::Leave,
            None => {
                self.finish(core, after, Writer::Caller, now);
                return Led::GoOn;
            }
        };
        core.leave_line(id, &self.driver.registry, now);
        self.finish(core, after, Writer::Caller, now);
        led
    }

    fn leave(&self, id: ConnectionId) {
        let now = clock::now();
        let mut core = self.lock();
        core.leave_line(id, &self.driver.registry, now);
        self.finish(core, After::default(), Writer::Caller, now);
    }

    fn park(
        &self,
        started: Started,
        waker: &Waker,
        check: &mut Check<'_>,
    ) -> Result<Outcome, Error> {
        loop {
            if let std::task::Poll::Ready(result) = self.poll(&started, waker) {
                return result;
            }
            match check {
                None => std::thread::park(),
                Some((every, go_on)) => {
                    std::thread::park_timeout(*every);
                    if !go_on() {
                        self.abandon(&started);
                        return Err(Error::cancelled());
                    }
                }
            }
        }
    }
}

thread_local! {
    static PARKER: Waker = Waker::from(Arc::new(Parker(std::thread::current())));
}

/// Wakes a thread that waits for its call.
struct Parker(Thread);

impl Wake for Parker {
    fn wake(self: Arc<Parker>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Parker>) {
        self.0.unpark();
    }
}

/// Gives an operation up if its thread unwinds, out of `go_on` for example.
struct Guard<'a> {
    instance: &'a Instance,
    started: Started,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.instance.abandon(&self.started);
    }
}
