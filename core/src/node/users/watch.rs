//! Reads the users again when their file has changed, or when told so. A file that cannot be used is named in the log with its line,
//! and the users stay as they were.

use super::{Right, User, UsersFile, file};
use crate::engine::{ConnectionId, Refusal, Time};
use crate::node::connection::Greeting;
use crate::node::state::{Node, Shared, now};
use crate::protocol::{Code, Reply};
use crate::stamps::Stamps;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often it is looked whether the file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How long a file has to stay as it is before it is read, so that one that is being written is read whole.
const SETTLE: Duration = Duration::from_millis(200);
/// How many connections are looked at before others get their turn.
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
        let (mut changed, mut closed) = (0, 0);
        for some in ids.chunks(AT_ONCE) {
            for change in node.lock().renew_users(some) {
                match change {
                    Change::Rights => changed += 1,
                    Change::Gone => closed += 1,
                }
            }
            tokio::task::yield_now().await;
        }
        tracing::info!(
            "the users have been read again: {count}; connections with other rights from now on: {changed}; connections closed because their \
             users are gone or have another secret: {closed}"
        );
    }
}

/// What a new file has meant for a connection.
enum Change {
    /// Its user may do other things from now on.
    Rights,
    /// What it said in its hello does not let it in any more.
    Gone,
}

impl Node {
    /// Gives those connections whose users have changed what the file says now. Who would not be let in any more with what it
    /// has said is let go; a client comes back at once, and keeps its locks. Everybody else stays, and so does what waits on
    /// the connection, but for keys that may not be locked any more.
    fn renew_users(&mut self, ids: &[ConnectionId]) -> Vec<Change> {
        let now = now();
        let mut changes = Vec::new();
        for id in ids {
            let Some(connection) = self.connections.get_mut(*id) else {
                continue;
            };
            let Some(old) = connection.user.as_ref().filter(|user| user.is_retired()) else {
                continue;
            };
            let present = self.users.as_ref().and_then(|users| users.present(old));
            match present {
                Some(user) => {
                    self.give_rights(now, *id, user);
                    changes.push(Change::Rights);
                }
                None => {
                    self.dismiss_user(*id);
                    changes.push(Change::Gone);
                }
            }
        }
        self.flush_others(now);
        self.rearm();
        changes
    }

    fn give_rights(&mut self, now: Time, id: ConnectionId, user: Arc<User>) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        connection.user = Some(user.clone());
        if let Some(listing) = &mut connection.listing {
            listing.restrict(&user);
        }
        // What is parked is looked at when its turn comes.
        self.engine
            .refuse_waiting_for(now, id, Refusal::Denied, |key| user.may(Right::Lock, key));
        self.deliver();
    }

    fn dismiss_user(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.greeting = Greeting::Dismissed;
            connection.wake();
        }
        let reply = Reply::Refused {
            operation: None,
            key: b"-",
            code: Code::Auth.as_str(),
            tag: None,
            text: "the users of this server have changed: say hello again",
        };
        self.tell(id, &reply);
    }
}
