//! Hello, and who is active: what a simulated node tells its clients unasked or once.

use crate::desk::Work;
use crate::node::Process;
use crate::plan::Harm;
use fairlock::cluster::{Event, Stage, Stance};
use fairlock::protocol::{AddressList, Hello, HelloReply, NameRef, Reply, Role};

/// A year in seconds: how far beyond the wall clock a client's word counts.
const YEAR: u32 = 31_536_000;

impl Process {
    pub(crate) fn hello(&mut self, work: &mut Work<'_>, connection: usize, hello: &Hello<'_>) {
        let Some(visitor) = self.visitors.get_mut(&connection) else {
            return;
        };
        let name = hello.name.unwrap_or(NameRef::NONE);
        visitor.client = hello.id;
        visitor.greeted = true;
        self.engine.hello(visitor.id, hello.id, name);
        if let Some(seen) = hello.seen {
            self.hear_seen(work, (seen.get() >> 32) as u32);
        }
        let members = self.member.members();
        let own = members.address(members.own()).unwrap_or("-");
        let active = self.member.active().and_then(|slot| members.address(slot));
        let peers = members.field();
        let reply = Reply::Hello(HelloReply {
            role: match self.member.stage() {
                Stage::Starting => Role::Starting,
                Stage::Standby | Stage::Candidate => Role::Standby,
                Stage::Active | Stage::HandingOver => Role::Active,
                Stage::Leaving => Role::Leaving,
            },
            node: own,
            active,
            peers: AddressList(&peers),
            server: "simulation",
        });
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.push(connection, bytes, None);
    }

    /// A client has seen a token of this term: it counts within a year of the wall clock, once a second.
    pub(crate) fn hear_seen(&mut self, work: &mut Work<'_>, term: u32) {
        let base = if work.now.wall == 0 {
            self.first_term
        } else {
            work.now.wall
        };
        if term <= self.member.known_term() || term > base.saturating_add(YEAR) {
            return;
        }
        self.seen_later = Some(term.max(self.seen_later.unwrap_or(0)));
        self.heed_seen(work);
    }

    pub(crate) fn heed_seen(&mut self, work: &mut Work<'_>) {
        let time = work.now.time.0;
        if self.seen_later.is_some() && time >= self.seen_from {
            let term = self.seen_later.take().expect("it is there");
            self.seen_from = time + 1_000_000;
            work.coverage.count("term seen by a client");
            self.client_term = self.client_term.max(term);
            work.checker.tokens.told(work.node, term);
            if work.harm != Harm::DeafToClients {
                let event = Event::TermSeen { term };
                self.member.handle(work.now, event, &mut self.engine);
            }
        }
    }

    /// Tells every client that said hello who is active, if that is news.
    pub(crate) fn tell_active(&mut self, work: &mut Work<'_>) {
        let active = match self.stance {
            Stance::Serve | Stance::Redirect(_) | Stance::Leave(Some(_)) => self.member.active(),
            Stance::Park | Stance::Freeze | Stance::Leave(None) => None,
        };
        let address = active.and_then(|slot| self.member.members().address(slot));
        if address == self.told_active.as_deref() {
            return;
        }
        // While it hands over, nothing is known anew.
        if address.is_none() && self.stance == Stance::Freeze {
            return;
        }
        self.told_active = address.map(str::to_owned);
        let Some(address) = self.told_active.clone() else {
            return;
        };
        let greeted: Vec<usize> = self
            .visitors
            .iter()
            .filter(|(_, visitor)| visitor.greeted)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in greeted {
            work.coverage.count("active node told");
            let address = &address;
            self.say(connection, &Reply::ActiveAt { address }, None);
        }
    }
}
