//! Who speaks to the engine, and what a broken connection leaves behind.

use super::lock::{Claim, Stage};
use super::output::Grant;
use super::slab::NIL;
use super::time::Time;
use super::{Engine, SharedOwner};
use crate::protocol::{ClientId, NameRef};
use std::sync::Arc;

/// Names a connection. Indices are dense and used again, so they can index the caller's own table;
/// the generation tells a connection from those that had its index before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    /// The place in a table of connections.
    pub index: u32,
    /// Rises with every connection.
    pub generation: u32,
}

/// Who made a request: shared by all requests of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The client instance, if its hello named it.
    pub client: Option<ClientId>,
    name: Box<[u8]>,
    address: Box<str>,
}

impl Owner {
    /// Takes what the hello said and where the connection came from.
    #[must_use]
    pub fn new(client: Option<ClientId>, name: NameRef<'_>, address: &str) -> Owner {
        Owner {
            client,
            name: name.spelling().into(),
            address: address.into(),
        }
    }

    /// What the client calls itself, as it stands on the wire.
    #[must_use]
    pub fn name_spelling(&self) -> &[u8] {
        &self.name
    }

    /// What the client calls itself.
    #[must_use]
    pub fn name(&self) -> NameRef<'_> {
        NameRef::parse(&self.name).expect("it is the spelling of a name since `new`")
    }

    /// Where the connection came from, `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// A connection that lives, or has gone and left more than could be seen to at once.
pub(super) struct Connection {
    pub(super) generation: u32,
    /// Taken from the owner once more than for each claim.
    pub(super) owner: u32,
    pub(super) client: Option<ClientId>,
    /// The first of its waiting claims.
    pub(super) waiting: u32,
    pub(super) waiting_count: u32,
    /// It said hello or asked for something; a hello is late from then on.
    pub(super) spoke: bool,
    /// It is gone, and its requests keep their places until then at most.
    pub(super) gone: Option<Time>,
}

impl Engine {
    /// A connection from `address` (`host:port`) begins.
    pub fn connect(&mut self, address: &str) -> ConnectionId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let owner = Owner::new(None, NameRef::NONE, address);
        let owner = self.owners.insert(SharedOwner {
            owner: Arc::new(owner),
            uses: 1,
        });
        let index = self.connections.insert(Connection {
            generation,
            owner,
            client: None,
            waiting: NIL,
            waiting_count: 0,
            spoke: false,
            gone: None,
        });
        ConnectionId { index, generation }
    }

    /// A connection says who it is. Returns false, and changes nothing, if it has said so before or
    /// has asked for a lock already.
    pub fn hello(
        &mut self,
        connection: ConnectionId,
        client: Option<ClientId>,
        name: NameRef<'_>,
    ) -> bool {
        let Some(speaker) = self.speaker(connection) else {
            return false;
        };
        if std::mem::replace(&mut speaker.spoke, true) {
            return false;
        }
        speaker.client = client;
        let shared = speaker.owner;
        let shared = &mut self.owners[shared].owner;
        *shared = Arc::new(Owner::new(client, name, shared.address()));
        true
    }

    /// A connection is gone. Its waiting requests leave, or if they can be recognised keep their
    /// place for the grace; where there are many, most of them in the steps of [`Engine::expire`](super::Engine::expire)
    /// that follow, but none of them is granted anything from now on. `unsent` are the grants whose
    /// reply had not left the node; they are taken back after the grace unless they are asked for again.
    pub fn disconnect(&mut self, now: Time, connection: ConnectionId, unsent: &[Grant]) {
        let until = now.after(self.settings.reattach_grace);
        let Some(gone) = self.speaker(connection) else {
            return;
        };
        gone.gone = Some(until);
        let owner = gone.owner;
        self.wheel.catch_up(now);
        for grant in unsent {
            self.take_back_later(*grant, owner, until);
        }
        let mut budget = self.settings.parted_at_once as usize;
        if !self.part(now, connection.index, &mut budget) {
            self.parting.push_back(connection.index);
        }
    }

    /// Goes on with connections that are gone, as far as the budget reaches.
    pub(super) fn part_more(&mut self, now: Time, budget: &mut usize) {
        while let Some(connection) = self.parting.front().copied() {
            if !self.part(now, connection, budget) {
                return;
            }
            self.parting.pop_front();
        }
    }

    /// Lets requests leave, or detaches them, that wait on a connection that is gone. Forgets the
    /// connection, and returns true, when that was the last one.
    fn part(&mut self, now: Time, connection: u32, budget: &mut usize) -> bool {
        let gone = &self.connections[connection];
        let (owner, until) = (gone.owner, gone.gone.unwrap_or(now));
        let recognised = gone.client.is_some();
        loop {
            let claim = self.connections[connection].waiting;
            if claim == NIL {
                break;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let stage = self.claims[claim].stage;
            let Stage::Attached { since, .. } = stage else {
                unreachable!("a connection lists only claims that are attached to it");
            };
            if !recognised || self.claims[claim].tag().is_none() {
                self.leave(now, claim);
                continue;
            }
            self.wheel.remove(&mut self.claims, claim);
            self.untie(stage);
            self.owners[owner].uses += 1;
            self.claims[claim].stage = Stage::Detached {
                since,
                until,
                owner,
            };
            self.detached += 1;
            self.wheel.insert(&mut self.claims, claim);
        }
        self.connections.remove(connection);
        self.release_owner(owner);
        true
    }

    /// Whom to tell what becomes of a request that waits on this connection: nobody, if it is gone.
    pub(super) fn listener(&self, connection: u32) -> Option<ConnectionId> {
        let listener = &self.connections[connection];
        listener.gone.is_none().then_some(ConnectionId {
            index: connection,
            generation: listener.generation,
        })
    }

    /// The connection, if it still lives.
    pub(super) fn speaker(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.index).filter(|connection| {
            connection.generation == id.generation && connection.gone.is_none()
        })
    }

    pub(super) fn speaker_ref(&self, id: ConnectionId) -> Option<&Connection> {
        let connection = self.connections.get(id.index);
        connection.filter(|connection| connection.generation == id.generation)
    }

    /// Who made a claim.
    pub(super) fn owner_of(&self, claim: &Claim) -> &Arc<Owner> {
        &self.owners[self.owner_number(claim.stage)].owner
    }

    pub(super) fn owner_number(&self, stage: Stage) -> u32 {
        match stage {
            Stage::Attached { connection, .. } => self.connections[connection].owner,
            Stage::Detached { owner, .. } | Stage::Held { owner, .. } => owner,
        }
    }

    pub(super) fn release_owner(&mut self, owner: u32) {
        let shared = &mut self.owners[owner];
        shared.uses -= 1;
        if shared.uses == 0 {
            self.owners.remove(owner);
        }
    }

    /// Puts a claim that nothing ties among those that wait on `connection`.
    pub(super) fn attach(&mut self, claim: u32, connection: u32, since: Time) {
        let speaker = &mut self.connections[connection];
        let first = std::mem::replace(&mut speaker.waiting, claim);
        speaker.waiting_count += 1;
        self.claims[claim].stage = Stage::Attached {
            since,
            connection,
            previous: NIL,
            next: first,
        };
        if let Some(Stage::Attached { previous, .. }) = self.stage_mut(first) {
            *previous = claim;
        }
    }

    /// Takes a claim out of whatever its stage ties it to: its connection's list, or its owner.
    pub(super) fn untie(&mut self, stage: Stage) {
        match stage {
            Stage::Attached {
                connection,
                previous: before,
                next: after,
                ..
            } => {
                let speaker = &mut self.connections[connection];
                speaker.waiting_count -= 1;
                if before == NIL {
                    speaker.waiting = after;
                }
                if let Some(Stage::Attached { next, .. }) = self.stage_mut(before) {
                    *next = after;
                }
                if let Some(Stage::Attached { previous, .. }) = self.stage_mut(after) {
                    *previous = before;
                }
            }
            Stage::Detached { owner, .. } => {
                self.detached -= 1;
                self.release_owner(owner);
            }
            Stage::Held { owner, .. } => self.release_owner(owner),
        }
    }
}
