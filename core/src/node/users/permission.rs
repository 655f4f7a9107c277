//! What a user may ask for. Looked at for each request of a user that may not do everything, and for nobody else's.
//!
//! A probe, a status and a cancel are everybody's: a cancel ends only what the same client has begun.

use super::{Right, User};
use crate::engine::{ConnectionId, Time, Whose};
use crate::node::answer::{Flow, subject};
use crate::node::state::Node;
use crate::protocol::{Code, KeyRef, Reply, Request};
use std::sync::Arc;

impl User {
    /// Why it may not see which keys are held, if so.
    pub(crate) fn may_not_list(&self) -> Option<&'static str> {
        (!self.rights.has(Right::List)).then_some("this user may not list keys")
    }

    /// Why it may not see who holds a key and who waits for it, if so.
    pub(crate) fn may_not_inspect(&self, key: KeyRef<'_>) -> Option<&'static str> {
        (!self.may(Right::Inspect, key)).then_some("this user may not look at this key")
    }
}

impl Node {
    /// The user of a connection, if it may not do everything.
    pub(crate) fn limited_user(&mut self, id: ConnectionId) -> Option<Arc<User>> {
        let user = self.connections.get_mut(id)?.user.as_ref()?;
        (!user.may_everything()).then(|| user.clone())
    }

    /// As [`Node::handle_request`], for a connection of which it is not known whether it may do everything.
    pub(crate) fn handle_if_allowed(
        &mut self,
        now: Time,
        id: ConnectionId,
        request: &Request<'_>,
    ) -> Flow {
        if self.connections.get_mut(id).is_none() {
            // Nobody knows what it might do.
            return Flow::Close;
        }
        let user = self.limited_user(id);
        match user.and_then(|user| self.denial(id, &user, request)) {
            None => self.handle_request(now, id, request),
            Some(text) => {
                let (operation, key, tag) = subject(request);
                self.answer(&Reply::Refused {
                    operation,
                    key,
                    code: Code::Denied.as_str(),
                    tag,
                    text,
                });
                Flow::On
            }
        }
    }

    /// Why a user may not have what it asks for, if so.
    fn denial(&self, id: ConnectionId, user: &User, request: &Request<'_>) -> Option<&'static str> {
        let (allowed, text) = match *request {
            Request::Acquire { key, .. } => (
                user.may(Right::Lock, key),
                "this user may not lock this key",
            ),
            Request::Release { key, token, .. } => {
                // What it holds it may always give back, also if it may not lock the key any more.
                let whose = self.engine.whose(id, key, token);
                let allowed = whose == Whose::Own || may_touch(user, whose, key);
                (allowed, "this user may not release this lock")
            }
            Request::Keep { key, token, .. } => {
                let whose = self.engine.whose(id, key, token);
                (
                    may_touch(user, whose, key),
                    "this user may not keep this lock",
                )
            }
            Request::Inspect { key, .. } | Request::Waiters { key, .. } => {
                return user.may_not_inspect(key);
            }
            // Of the rows it gets those that it may see.
            Request::List { .. } => return user.may_not_list(),
            Request::Cancel { .. } | Request::Hello(_) | Request::Ping { .. } | Request::Status => {
                return None;
            }
        };
        (!allowed).then_some(text)
    }
}

/// Whether a user may change a grant of this key; one that is gone is only to be told so.
fn may_touch(user: &User, whose: Whose, key: KeyRef<'_>) -> bool {
    let own = whose != Whose::Others && user.may(Right::Lock, key);
    own || user.may(Right::ReleaseOthers, key)
}
