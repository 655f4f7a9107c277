//! Reads the users again when their file has changed, or when told so. A file that cannot be used is named in the log with its line,
//! and the users stay as they were.

use super::{Right, UsersFile, file};
use crate::engine::{ConnectionId, Refusal, Time};
use crate::node::connection::Connection;
use crate::node::farewell;
use crate::node::state::{Node, Shared, now};
use crate::protocol::{Code, KeyRef, Reply};
use crate::stamps::Stamps;
use std::time::Duration;
use tokio::sync::watch;

/// How often it is looked whether the file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How long a file has to stay as it is before it is read, so that one that is being written is read whole.
const SETTLE: Duration = Duration::from_millis(200);
/// How many connections, and requests that wait on them, are looked at before others get their turn.
const AT_ONCE: usize = 512;

/// Never ends.
pub(crate) async fn watch(node: Shared, mut users: UsersFile, mut reload: watch::Receiver<()>) {
    loop {
        let told = tokio::select! {
            told = reload.changed() => told.is_ok(),
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        if users.is_to_be_read(told).await {
            users.read_again(&node).await;
        }
        if reload.has_changed().is_err() {
            // Nobody is left to tell.
            std::future::pending::<()>().await;
        }
    }
}

impl UsersFile {
    /// Whether the file has changed, and no longer does, or is to be read in any case.
    async fn is_to_be_read(&mut self, in_any_case: bool) -> bool {
        let mut stamps = self.look().await;
        if in_any_case {
            self.stamps = stamps;
            return true;
        }
        if stamps == self.stamps {
            return false;
        }
        loop {
            tokio::time::sleep(SETTLE).await;
            let later = self.look().await;
            if later == stamps {
                self.stamps = stamps;
                return true;
            }
            stamps = later;
        }
    }

    async fn look(&self) -> Stamps {
        let path = self.path.clone();
        // On another thread, because a disk may hang.
        let look = tokio::task::spawn_blocking(move || Stamps::of([&path]));
        look.await.unwrap_or_else(|_| self.stamps.clone())
    }

    async fn read_again(&self, node: &Shared) {
        let path = self.path.clone();
        let server = node.lock().settings.secret.clone();
        let read = tokio::task::spawn_blocking(move || file::read(&path, server.as_ref()));
        let entries = match read.await {
            Ok(Ok(entries)) => entries,
            Ok(Err(error)) => {
                return tracing::error!("{error}; the users stay as they were");
            }
            Err(error) => return tracing::error!("the users cannot be read: {error}"),
        };
        let count = entries.len();
        let ids = {
            let mut node = node.lock();
            if let Some(users) = &mut node.users {
                users.replace(entries);
            }
            node.connections.ids()
        };
        let mut changes = Changes::default();
        let mut left = &ids[..];
        while !left.is_empty() {
            let done = node.lock().renew_users(left, &mut changes);
            left = &left[done..];
            for connection in changes.parted.drain(..) {
                tokio::spawn(farewell::farewell(node.clone(), connection, true));
            }
            tokio::task::yield_now().await;
        }
        let Changes { rights, gone, .. } = changes;
        tracing::info!(
            "the users have been read again: {count}; connections with other rights from now on: {rights}; connections closed because their \
             users are gone or have another secret: {gone}"
        );
    }
}

/// For how many connections a new file has meant something.
#[derive(Default)]
struct Changes {
    /// Their users may do other things from now on.
    rights: usize,
    /// What they said in their hello does not let them in any more.
    gone: usize,
    /// Those of them that are no part of the node any more, and are still to be told.
    #[expect(clippy::vec_box, reason = "each keeps the box that it had in the node")]
    parted: Vec<Box<Connection>>,
}

impl Node {
    /// Gives connections whose users have changed what the file says now. Who would not be let in any more with what it
    /// has said is no part of the node from this step on, whether it reads or not: nothing is granted to it, and nothing that it
    /// has asked for is done. Its client comes back at once, if it may, and keeps its locks. Everybody else stays, and so does
    /// what waits on the connection, but for keys that may not be locked any more. Does a bounded part, and returns how many
    /// connections it has seen to.
    fn renew_users(&mut self, ids: &[ConnectionId], changes: &mut Changes) -> usize {
        let now = now();
        let (mut done, mut work) = (0, 0);
        while done < ids.len() && work < AT_ONCE {
            work += 1 + self.renew_user(now, ids[done], changes);
            done += 1;
        }
        self.flush_others(now);
        self.rearm();
        done
    }

    /// Returns how many requests had to be looked at.
    fn renew_user(&mut self, now: Time, id: ConnectionId, changes: &mut Changes) -> usize {
        let Some(connection) = self.connections.get_mut(id) else {
            return 0;
        };
        let Some(old) = connection.user.as_ref().filter(|user| user.is_retired()) else {
            return 0;
        };
        let present = self.users.as_ref().and_then(|users| users.present(old));
        let Some(user) = present else {
            changes.gone += 1;
            changes.parted.extend(self.part_with_user(now, id));
            return 0;
        };
        changes.rights += 1;
        connection.user = Some(user.clone());
        if let Some(listing) = &mut connection.listing {
            listing.restrict(&user);
        }
        // What is parked is looked at when its turn comes.
        let may_lock = |key: KeyRef<'_>| user.may(Right::Lock, key);
        let looked_at = self
            .engine
            .refuse_waiting_for(now, id, Refusal::Denied, may_lock);
        self.deliver();
        looked_at
    }

    /// Takes the connection of a user out of the node that is none any more, with all that it was still to be answered. What was
    /// answered before may still be read.
    fn part_with_user(&mut self, now: Time, id: ConnectionId) -> Option<Box<Connection>> {
        self.counters.users_gone += 1;
        let mut connection = self.disconnect(now, id, &[])?;
        connection.listing = None;
        connection.unhandled = Vec::new();
        let reply = Reply::Refused {
            operation: None,
            key: b"-",
            code: Code::Auth.as_str(),
            tag: None,
            text: "the users of this server have changed: say hello again",
        };
        self.counters.note(&reply);
        reply.encode(connection.outbox.lines(&mut self.spare));
        Some(connection)
    }
}
