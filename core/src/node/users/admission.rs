//! From a hello to a user. Who is known is let in at once. A secret that has to be checked against a hash goes to one of
//! few lanes, which hash on threads of their own; until its verdict is there nothing more is read from its connection.
//!
//! Hellos that say the same share one check. How many checks and connections may wait is bounded, and who comes beyond
//! that is told so, whether its secret is right or wrong.

use super::hash::{Digest, Hash};
use super::{Proof, User, Users};
use crate::engine::ConnectionId;
use crate::node::connection::Greeting;
use crate::node::log::now_and_then;
use crate::node::settings::Secret;
use crate::node::state::{Node, Shared};
use crate::protocol::Hello;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Notify;

/// How many secrets are hashed at once, if the machine has a core to spare for each.
const LANES: usize = 2;
/// How many may wait for that: as many as are done in the time that a client waits for its answer.
pub(super) const MOST_CHECKS: usize = 256;
/// How many of them may be for hellos from one place, so that a stranger with wrong secrets leaves places for others.
pub(super) const MOST_CHECKS_OF_ONE: usize = MOST_CHECKS / 4;
/// How many connections may wait for them.
pub(super) const MOST_WAITING: usize = 4096;

/// What becomes of a hello.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is let in, as a user or as somebody who may do everything.
    As(Option<Arc<User>>),
    /// It has said nothing that lets it in.
    Refused,
    /// Too many secrets are to be checked already.
    Busy,
    /// Its secret is being checked. It is asked again afterwards.
    Later,
}

/// Secrets that are being checked, or wait for it.
#[derive(Default)]
pub(crate) struct Checks {
    /// In the order in which they came.
    under_way: Vec<Check>,
    waiting: usize,
    work: Arc<Notify>,
}

struct Check {
    said: Digest,
    secret: Secret,
    hash: Arc<Hash>,
    /// Whose hash it is; nobody's if the name was wrong.
    user: Option<Arc<User>>,
    /// Of the users when it was asked for.
    edition: u64,
    /// Where the hello came from that it was first asked for.
    from: IpAddr,
    begun: bool,
    connections: Vec<ConnectionId>,
}

impl Checks {
    /// The next check that nobody does, for a lane.
    pub(super) fn begin(&mut self) -> Option<(Digest, Secret, Arc<Hash>)> {
        let check = self.under_way.iter_mut().find(|check| !check.begun)?;
        check.begun = true;
        Some((check.said, check.secret.clone(), check.hash.clone()))
    }

    fn add(
        &mut self,
        id: ConnectionId,
        from: IpAddr,
        said: Digest,
        check: impl FnOnce() -> Check,
    ) -> Admission {
        if self.waiting >= MOST_WAITING {
            return Admission::Busy;
        }
        let own = self.under_way.iter().filter(|check| check.from == from);
        let full = self.under_way.len() >= MOST_CHECKS || own.count() >= MOST_CHECKS_OF_ONE;
        match self.under_way.iter_mut().find(|check| check.said == said) {
            Some(check) => check.connections.push(id),
            None if full => return Admission::Busy,
            None => {
                self.under_way.push(check());
                self.work.notify_one();
            }
        }
        self.waiting += 1;
        Admission::Later
    }

    fn end(&mut self, said: &Digest) -> Option<Check> {
        let index = self
            .under_way
            .iter()
            .position(|check| check.said == *said)?;
        let check = self.under_way.remove(index);
        self.waiting -= check.connections.len();
        Some(check)
    }
}

impl Users {
    /// Who says this; `unproven` if a check has found it wrong.
    pub(super) fn admit(
        &mut self,
        id: ConnectionId,
        address: IpAddr,
        text: &[u8],
        unproven: bool,
    ) -> Admission {
        let said = self.digests.of(&[text]);
        if let Some(user) = self.known.get(&said) {
            return Admission::As(Some(user.clone()));
        }
        let colon = memchr::memchr(b':', text);
        let (Some(colon), Some(decoy), false) = (colon, &self.decoy, unproven) else {
            return Admission::Refused;
        };
        let name = str::from_utf8(&text[..colon]).ok();
        let (user, hash) = match name.and_then(|name| self.all.get(name)) {
            Some(user) => match &user.proof {
                Proof::Hash(hash) => (Some(user.clone()), hash.clone()),
                Proof::Secret(_) => (None, decoy.clone()),
            },
            None => (None, decoy.clone()),
        };
        let edition = self.edition;
        let from = place_of(address);
        self.checks.add(id, from, said, || Check {
            said,
            secret: Secret::new(&text[colon + 1..]),
            hash,
            user,
            edition,
            from,
            begun: false,
            connections: vec![id],
        })
    }

    /// A check has ended. Returns who waits for it, and how they stand now.
    pub(super) fn settle(&mut self, said: &Digest, fits: bool) -> (Vec<ConnectionId>, Greeting) {
        let Some(check) = self.checks.end(said) else {
            return (Vec::new(), Greeting::Awaited);
        };
        let user = check.user.filter(|_| fits);
        let proven = user.is_some();
        if let Some(user) = user.filter(|user| !user.is_retired()) {
            self.known.insert(*said, user);
        }
        // Where the file has changed meanwhile they are asked once more.
        let greeting = match proven || check.edition != self.edition {
            true => Greeting::Awaited,
            false => Greeting::Unproven,
        };
        (check.connections, greeting)
    }
}

/// As much of an address as a stranger cannot choose.
fn place_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

impl Node {
    /// Whether who connects has to say who it is before it is served.
    pub(crate) fn asks_who_speaks(&self) -> bool {
        self.settings.secret.is_some() || self.users.is_some()
    }

    /// What becomes of a hello.
    pub(crate) fn admit(&mut self, id: ConnectionId, hello: &Hello<'_>) -> Admission {
        if !self.asks_who_speaks() {
            return Admission::As(None);
        }
        let Some(auth) = hello.auth else {
            return Admission::Refused;
        };
        let said = auth.decode();
        let server = self.settings.secret.as_ref();
        if server.is_some_and(|secret| secret.matches(&said)) {
            return Admission::As(None);
        }
        let (Some(users), Some(connection)) = (&mut self.users, self.connections.get_mut(id))
        else {
            return Admission::Refused;
        };
        let address = connection.stream.peer_address().ip();
        let unproven = connection.greeting == Greeting::Unproven;
        users.admit(id, address, &said, unproven)
    }

    /// Lets those go on that have waited for a check.
    fn settle_check(&mut self, said: &Digest, fits: bool) {
        let Some(users) = &mut self.users else {
            return;
        };
        let (connections, greeting) = users.settle(said, fits);
        for id in connections {
            if let Some(connection) = self.connections.get_mut(id)
                && connection.greeting == Greeting::Checking
            {
                connection.greeting = greeting;
                connection.wake();
            }
        }
    }
}

/// Begins to check secrets.
pub(crate) fn start_lanes(node: &Shared) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..LANES.min(cores - 1).max(1) {
        tokio::spawn(lane(node.clone()));
    }
}

/// Does one check after the other. Never ends.
async fn lane(node: Shared) {
    let work = match &node.lock().users {
        Some(users) => users.checks.work.clone(),
        None => return,
    };
    loop {
        let next = {
            let mut node = node.lock();
            node.users.as_mut().and_then(|users| users.checks.begin())
        };
        let Some((said, secret, hash)) = next else {
            work.notified().await;
            continue;
        };
        let check = tokio::task::spawn_blocking(move || hash.is_of(secret.bytes()));
        let fits = check.await.unwrap_or_else(|error| {
            now_and_then!(error, "a secret could not be checked: {error}");
            false
        });
        node.lock().settle_check(&said, fits);
    }
}
