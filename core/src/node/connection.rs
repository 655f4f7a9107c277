//! What a node knows of one connection, and the table of all of them.

use super::listing::Listing;
use super::outbox::Outbox;
use super::stream::Stream;
use super::users::User;
use crate::engine::{ConnectionId, Time};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// One connection. An idle one has no buffer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Replies that the socket did not take. While there are any, nothing more is read.
    pub(crate) outbox: Outbox,
    /// What was last [counted](super::unread) as kept for a client that does not read.
    pub(crate) weight: u64,
    /// Bytes that were read and not yet handled: half a line, or requests whose replies have no room yet.
    pub(crate) unhandled: Vec<u8>,
    /// Lines that came before those and were parked; hardly any connection ever has some.
    handed_back: Option<Box<HandedBack>>,
    /// Rows that are still to be made.
    pub(crate) listing: Option<Box<Listing>>,
    /// Wakes the connection's task.
    pub(crate) waker: Option<Waker>,
    /// When bytes came last; at first, when the connection was made.
    pub(crate) heard: Time,
    pub(crate) greeting: Greeting,
    /// Who it is, where it is a user; nobody else is limited in what it may do.
    pub(crate) user: Option<Arc<User>>,
    /// It has more to do, and lets others have their turn first.
    pub(crate) yields: bool,
    /// Whether the outbox is on the list of those to be flushed.
    pub(crate) touched: bool,
    /// On a node that is about to stop: the client has been told all that it has to know.
    pub(crate) may_end: bool,
}

/// Lines for the connection's task to answer, in the order in which they came.
#[derive(Debug, Default)]
struct HandedBack {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
}

/// How far a connection has said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// It has said nothing yet.
    Awaited,
    /// Its secret is being checked. Until that is done nothing more is read.
    Checking,
    /// Its secret has been checked and is wrong, and it has not been told yet.
    Unproven,
    /// It has said something else than hello.
    Anonymous,
    /// It has said hello without naming an id.
    Introduced,
    /// It named an id, and so has promised to say something every ten seconds.
    Identified,
}

impl Greeting {
    /// Whether the first line is still to be handled.
    pub(crate) fn is_to_come(self) -> bool {
        matches!(self, Greeting::Awaited | Greeting::Unproven)
    }
}

impl Connection {
    pub(crate) fn new(stream: Stream, now: Time) -> Connection {
        Connection {
            stream,
            outbox: Outbox::default(),
            weight: 0,
            unhandled: Vec::new(),
            handed_back: None,
            listing: None,
            waker: None,
            heard: now,
            greeting: Greeting::Awaited,
            user: None,
            yields: false,
            touched: false,
            may_end: false,
        }
    }

    /// Whether it has to be looked at what it asks for.
    pub(crate) fn is_limited(&self) -> bool {
        self.user
            .as_ref()
            .is_some_and(|user| !user.may_everything())
    }

    /// Lets the connection's task answer a line that was parked, before whatever has come since.
    pub(crate) fn hand_back(&mut self, line: Box<[u8]>) {
        let handed_back = self.handed_back.get_or_insert_default();
        handed_back.bytes += line.len();
        handed_back.lines.push_back(line);
        self.wake();
    }

    /// The next line that was handed back.
    pub(crate) fn take_handed_back(&mut self) -> Option<Box<[u8]>> {
        let handed_back = self.handed_back.as_mut()?;
        let line = handed_back.lines.pop_front();
        match &line {
            Some(line) => handed_back.bytes -= line.len(),
            None => self.handed_back = None,
        }
        line
    }

    /// How many bytes of requests are kept that are not answered yet, those included that TLS holds for it.
    pub(crate) fn unanswered(&self) -> usize {
        let handed_back = self.handed_back.as_ref();
        let handed_back = handed_back.map_or(0, |handed_back| handed_back.bytes);
        self.unhandled.len() + self.stream.held_plain() + handed_back
    }

    /// Lets the connection's task look at it again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// All connections, in the places that the engine's ids name.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    places: Vec<Option<Place>>,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    connection: Box<Connection>,
}

impl Connections {
    pub(crate) fn insert(&mut self, id: ConnectionId, connection: Connection) {
        let index = id.index as usize;
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        debug_assert!(self.places[index].is_none(), "the engine's ids are unique");
        self.places[index] = Some(Place {
            generation: id.generation,
            connection: Box::new(connection),
        });
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        match self.places.get_mut(id.index as usize) {
            Some(Some(place)) if place.generation == id.generation => Some(&mut place.connection),
            _ => None,
        }
    }

    /// Whether no whole line has come of this connection yet.
    pub(crate) fn is_undecided(&mut self, id: ConnectionId) -> bool {
        self.get_mut(id)
            .is_some_and(|connection| connection.greeting == Greeting::Awaited)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        self.get_mut(id)?;
        let place = self.places[id.index as usize].take();
        place.map(|place| place.connection)
    }

    /// The ids of all connections.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        let places = self.places.iter().enumerate();
        places
            .filter_map(|(index, place)| {
                let generation = place.as_ref()?.generation;
                Some(ConnectionId {
                    index: index as u32,
                    generation,
                })
            })
            .collect()
    }
}
