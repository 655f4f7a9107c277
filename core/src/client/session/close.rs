//! The end of a client: closed by its user, or given up with its last handle.

use super::connection::State;
use super::operation::Kind;
use super::slab::OperationId;
use super::{Effect, FaceId, Micros, Outcome, SECOND, Session};
use crate::error::{Error, LostReason};

/// How long a closed client takes to release what it held.
const LAST_WORDS: Micros = SECOND;

/// How far the client's life has gone.
pub(crate) enum Life {
    Open,
    /// Closed: what was held is being released, at most until then.
    Closing {
        until: Micros,
        faces: Vec<FaceId>,
    },
    /// Nobody has a handle any more: what is said in the background is said to its end.
    Retiring,
    Over,
}

impl Life {
    pub(super) fn deadline(&self) -> Option<Micros> {
        match self {
            Life::Closing { until, .. } => Some(*until),
            Life::Open | Life::Retiring | Life::Over => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self, Life::Over)
    }
}

impl Session {
    /// Rule 4.11.
    pub(super) fn close(&mut self, face: FaceId, now: Micros) {
        match &mut self.life {
            Life::Over => return self.complete(face, Ok(Outcome::Done)),
            Life::Closing { faces, .. } => return faces.push(face),
            Life::Open | Life::Retiring => {}
        }
        self.life = Life::Closing {
            until: now + LAST_WORDS,
            faces: vec![face],
        };
        self.life_hastened = true;
        for id in self.operations.ids() {
            self.close_operation(id, now);
        }
        for lock in self.locks.ids() {
            if self.is_lost_or_released(lock) {
                continue;
            }
            if self.view_lock(lock, now).is_some_and(|view| view.held) {
                self.lose_lock(lock, LostReason::Closed);
            }
            // Also what is left of one that was found overdue just now.
            self.release_lost(lock, now);
        }
        self.check_end(now);
    }

    fn close_operation(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        match &operation.kind {
            Kind::Acquire(_) => self.cancel_acquire(id, Error::closed(), now),
            Kind::Query(_) | Kind::Keep(..) => self.fail_operation(id, Error::closed()),
            Kind::Release(..) | Kind::Cancel(..) => {
                if let Some(face) = operation.face.take() {
                    self.complete(face, Err(Error::closed()));
                }
            }
        }
    }

    /// The last handle, the last lock and the last call are gone.
    pub(crate) fn retire(&mut self, now: Micros) {
        if matches!(self.life, Life::Open) {
            self.life = Life::Retiring;
        }
        self.check_end(now);
    }

    /// Ends the session when nothing is left to be said, or no time to say it.
    pub(super) fn check_end(&mut self, now: Micros) {
        let late = match &self.life {
            Life::Open | Life::Over => return,
            Life::Closing { until, .. } => now >= *until,
            Life::Retiring => false,
        };
        if !late && self.operations.len() > 0 {
            return;
        }
        let life = std::mem::replace(&mut self.life, Life::Over);
        for id in self.operations.ids() {
            self.fail_operation(id, Error::closed());
        }
        for index in 0..self.connections.len() {
            if !matches!(self.connections[index].state, State::Down { .. }) {
                self.close_socket(index, false);
            }
            self.connections[index].state = State::Down { again: None };
            self.connection_deadlines.set(index as u32, None);
        }
        if let Life::Closing { faces, .. } = life {
            for face in faces {
                self.complete(face, Ok(Outcome::Done));
            }
        }
        self.effects.push_back(Effect::Finished);
    }

    /// The caller of an operation gives up.
    pub(crate) fn cancel(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        match &operation.kind {
            Kind::Acquire(_) => self.cancel_acquire(id, Error::cancelled(), now),
            Kind::Query(_) => self.fail_operation(id, Error::cancelled()),
            Kind::Keep(_, keep) => {
                let lock = match keep.owner {
                    super::keep::Owner::Caller(lock) => Some(lock),
                    _ => None,
                };
                self.fail_operation(id, Error::cancelled());
                if let Some(lock) = lock {
                    self.forget_keep(lock, id);
                }
            }
            // Rule 4.6: cancelling the caller never stops a release.
            Kind::Release(..) | Kind::Cancel(..) => {
                if let Some(face) = operation.face.take() {
                    self.complete(face, Err(Error::cancelled()));
                }
            }
        }
        self.check_end(now);
    }
}
