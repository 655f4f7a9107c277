//! A node as one of several: the sockets, the disk and the clients around a [`Member`], which decides
//! who is active and what is copied, and knows none of them.
//!
//! ```text
//! links in ──▶ frames ──┐                       ┌──▶ frames ──▶ links out, one to each peer
//! refusals, ends ───────┼──▶ Member ⇄ Engine ───┼──▶ terms to write
//! clock ────────────────┘                       └──▶ stance ──▶ clients: serve, park, send elsewhere
//! ```
//!
//! A node without peers has none of this, and pays nothing for it.

mod clients;
mod dial;
mod incoming;
mod outgoing;
mod sync;

pub(crate) use clients::{is_for_every_node, settle_clients};
pub(crate) use incoming::{LinkId, receive};

use super::clock;
use super::log::now_and_then;
use super::settings::{Secret, Settings};
use super::state::{Node, Shared, WeakShared, millis};
use super::terms::TermWrite;
use super::view::NodeView;
use crate::cluster::{
    Beginning, Copy, Event, Greeting, HeldBack, Member, MemberSettings, Members, Note, Now, Output,
    Parking, Slot, Stage, Stance, Timing,
};
use crate::engine::{Engine, Time};
use crate::protocol::{Millis, Role, SecretRef};
use crate::tls::Connector;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// What a node with peers has beside the rest.
pub(crate) struct Cluster {
    pub(super) member: Member,
    /// Requests that wait for an active node.
    pub(super) parking: Parking,
    /// Grants whose replies wait for standbys.
    pub(super) held: HeldBack,
    peers: Vec<Peer>,
    /// What clients are to call this node.
    public: String,
    /// What this node says when it opens a link.
    greeting: Vec<u8>,
    secret: Option<Secret>,
    /// With what the links to peers are secured.
    connector: Option<Arc<Connector>>,
    times: LinkTimes,
    /// When the clock was last looked at, and how much may pass until it is again.
    looked: Time,
    unnoticed: Millis,
    /// When changes were last sent.
    told_changes: Time,
    /// How long they are collected.
    collect: Millis,
    stance: Stance,
    /// What the clients have been told of the active node.
    told: Option<Slot>,
    /// The role that the log has last named.
    noted: String,
    /// Told when clients have to be told, or parked requests can be answered.
    pub(super) clients: Arc<Notify>,
    /// Told when the node may have come to its end.
    pub(super) ending: Arc<Notify>,
    pub(super) over: bool,
    /// Numbers links, so that what an old one still says is not taken for the new one.
    next_link: u64,
    node: WeakShared,
}

/// The times of a link.
#[derive(Clone, Copy, Debug)]
struct LinkTimes {
    /// Between fresh connections, while none is made.
    retry: Duration,
    /// For a connection and its first answer.
    limit: Duration,
}

/// Another node, as far as sockets are concerned.
struct Peer {
    slot: Slot,
    /// As it stands in the list.
    address: String,
    /// What clients are to call it.
    public: String,
    /// A connection to it that is being made.
    dial: Option<AbortHandle>,
    /// The connection that it is sent frames over.
    outgoing: Option<Outgoing>,
    /// The connection that it sends frames over.
    incoming: Option<Incoming>,
    /// Why there is no link, so that the log says it once, and that there is one again.
    trouble: Option<String>,
}

struct Outgoing {
    number: u64,
    task: AbortHandle,
    /// Tells the task that there are frames.
    news: Arc<Notify>,
}

struct Incoming {
    number: u64,
    task: Option<AbortHandle>,
    /// Whether anything has come over it.
    spoke: bool,
}

impl Peer {
    /// A link with it has ended. That of the other direction mostly ends in the same moment, which is not said again.
    fn lost(&mut self, why: &str) {
        if self.trouble.is_none() {
            now_and_then!(info, "the link with {} has ended: {why}", self.address);
            self.trouble = Some(why.to_owned());
        }
    }
}

impl Cluster {
    /// The cluster of `settings`, which have been checked; `None` without peers.
    pub(crate) fn new(
        settings: &Settings,
        members: Option<Members>,
        connector: Option<Connector>,
        beginning: Beginning,
        first_counter: u32,
        engine: &mut Engine,
    ) -> Option<Cluster> {
        let members = members?;
        let timing = Timing {
            heartbeat: millis(settings.heartbeat),
            failure_timeout: millis(settings.failure_timeout),
            discovery_timeout: millis(settings.discovery_timeout),
            preempt_delay: millis(settings.preempt_delay),
            drain_timeout: millis(settings.drain_timeout),
            preempt: settings.preempt,
            ..Timing::default()
        };
        let own = members
            .address(members.own())
            .unwrap_or_default()
            .to_owned();
        let public = settings.advertise.clone().unwrap_or_else(|| own.clone());
        let secret = settings.peer_secret();
        let peers = members.others().map(|slot| {
            let address = members.address(slot).unwrap_or_default().to_owned();
            Peer {
                slot,
                public: address.clone(),
                address,
                dial: None,
                outgoing: None,
                incoming: None,
                trouble: None,
            }
        });
        let peers: Vec<Peer> = peers.collect();
        let parking = Parking::new(
            millis(settings.park_timeout),
            settings.max_waiting_per_connection,
        );
        let member_settings = MemberSettings {
            timing,
            takeover_grace: millis(settings.takeover_grace),
            restart_grace: millis(settings.restart_grace),
            first_counter,
            confirm_at_once: settings.sync_standbys > 0,
            ..MemberSettings::default()
        };
        let greeting = greeting(&members, &public, secret);
        // Alone in its list it has no heartbeats, so nothing need happen for as long as you like.
        let unnoticed = match peers.is_empty() {
            true => Millis(u64::MAX),
            false => Millis(timing.failure_timeout.0 / 2),
        };
        let now = present();
        Some(Cluster {
            member: Member::new(now, members, member_settings, beginning, engine),
            parking,
            held: HeldBack::new(timing.failure_timeout),
            peers,
            public,
            greeting,
            secret: secret.cloned(),
            connector: connector.map(Arc::new),
            times: LinkTimes {
                retry: settings.heartbeat,
                limit: settings.failure_timeout,
            },
            looked: now.time,
            unnoticed,
            told_changes: Time(0),
            collect: if settings.sync_standbys > 0 {
                Millis(0)
            } else {
                COLLECT
            },
            stance: Stance::Park,
            told: None,
            noted: Role::Starting.to_string(),
            clients: Arc::new(Notify::new()),
            ending: Arc::new(Notify::new()),
            over: false,
            next_link: 0,
            node: WeakShared::default(),
        })
    }

    /// What clients are to call a node.
    fn public(&self, slot: Slot) -> &str {
        self.peer(slot).map_or(&self.public, |peer| &peer.public)
    }

    /// The active node as clients are to call it, if it is known.
    pub(super) fn active(&self) -> Option<&str> {
        self.member.active().map(|slot| self.public(slot))
    }

    /// All nodes as clients are to call them, in the order of their priority.
    pub(super) fn nodes(&self) -> String {
        let members = self.member.members();
        let places = (0..members.places() as u8).map(Slot);
        let names = places.map(|slot| members.address(slot).map_or("-", |_| self.public(slot)));
        names.collect::<Vec<_>>().join(",")
    }

    /// The standbys that have the whole state, as clients are to call them; `-` if there is none.
    pub(super) fn standbys(&self) -> String {
        let complete = self.member.peers(present()).filter(|peer| peer.complete);
        let names: Vec<&str> = complete.map(|peer| self.public(peer.slot)).collect();
        if names.is_empty() {
            "-".to_owned()
        } else {
            names.join(",")
        }
    }

    /// The term of the tokens that the cluster gives out, as far as this node knows: `own` is that of its
    /// latest one.
    pub(super) fn term(&self, own: u32) -> u32 {
        let heard = self.member.peers(present()).map(|peer| peer.beat.term);
        heard.fold(own, u32::max)
    }

    /// All nodes in the order of their priority, for people; `role` and `term` are those of this one.
    pub(super) fn view(&self, role: Role, term: u32) -> Vec<NodeView> {
        let (members, active) = (self.member.members(), self.member.active());
        let own = NodeView {
            address: self.public.clone(),
            own: true,
            lives: true,
            role,
            active: active == Some(members.own()),
            term,
            complete: role == Role::Active || self.member.copy().complete,
            lag: None,
        };
        let peers = self.member.peers(present()).map(|peer| {
            let view = NodeView {
                address: self.public(peer.slot).to_owned(),
                own: false,
                lives: peer.lives,
                role: role_of(peer.beat.stage),
                active: active == Some(peer.slot),
                term: peer.beat.term,
                complete: peer.complete || (peer.lives && peer.beat.copy.complete),
                lag: peer.lag,
            };
            (peer.slot, view)
        });
        let mut nodes: Vec<_> = peers.chain([(members.own(), own)]).collect();
        nodes.sort_unstable_by_key(|(slot, _)| *slot);
        nodes.into_iter().map(|(_, view)| view).collect()
    }

    fn peer(&self, slot: Slot) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.slot == slot)
    }

    fn peer_mut(&mut self, slot: Slot) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.slot == slot)
    }

    fn new_link(&mut self) -> u64 {
        self.next_link += 1;
        self.next_link
    }

    /// See [`Node::settle_copy`].
    fn settle(&mut self, engine: &mut Engine) {
        self.member.settle(present(), engine);
    }

    /// Where the changes are that the engine has, and whether it has the whole state.
    pub(super) fn kept(&self, engine: &Engine) -> Copy {
        self.member.kept(engine)
    }

    /// When there is something to do.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let held = self.held.next_deadline();
        let deadlines = [
            self.member.next_deadline(),
            self.parking.next_deadline(),
            held.filter(|_| self.stance == Stance::Serve),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Whether changes that wait have been collected for long enough; if so, they count as told.
    fn may_tell(&mut self, now: Time) -> bool {
        let due = self.told_changes.after(self.collect) <= now;
        if due {
            self.told_changes = now;
        }
        due
    }

    /// Tells the standbys what has changed.
    fn replicate(&mut self, now: Now, engine: &mut Engine) {
        self.member.replicate(now, engine);
        self.note_told(engine);
    }

    /// Where nothing is left to be told, all grants that are held back have been told, or have come to nothing.
    fn note_told(&mut self, engine: &Engine) {
        if engine.changes_waiting() == 0 {
            self.held.told(self.member.sequence(engine));
        }
    }

    /// Wakes the links that have something to send; with `all` every one, because there are changes
    /// that no frame has been made of yet.
    pub(super) fn wake_links(&self, all: bool) {
        for peer in &self.peers {
            if let Some(outgoing) = &peer.outgoing
                && (all || self.member.has_frames(peer.slot))
            {
                outgoing.news.notify_one();
            }
        }
    }
}

/// Under load changes are collected for so long before they are sent, which costs far less. A node that
/// is killed may have answered requests of this last moment that no standby has heard of.
const COLLECT: Millis = Millis(1);

/// How a node says who it is when it opens a link.
pub(crate) fn greeting(members: &Members, public: &str, secret: Option<&Secret>) -> Vec<u8> {
    let mut spelled = Vec::new();
    if let Some(secret) = secret {
        SecretRef::encode(secret.bytes(), &mut spelled);
    }
    Greeting {
        node: members.address(members.own()).unwrap_or_default(),
        list: &members.field(),
        public,
        secret: SecretRef::parse(&spelled).ok(),
    }
    .line()
}

/// What a node is to its clients.
fn role_of(stage: Stage) -> Role {
    match stage {
        Stage::Starting => Role::Starting,
        Stage::Standby | Stage::Candidate => Role::Standby,
        Stage::Active | Stage::HandingOver => Role::Active,
        Stage::Leaving => Role::Leaving,
    }
}

/// The moment, by both clocks.
pub(super) fn present() -> Now {
    Now {
        time: clock::now(),
        wall: clock::wall().seconds(),
    }
}

impl Node {
    /// For whoever looks at the state of a node that copies another one: its engine has all that has come.
    pub(crate) fn settle_copy(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.settle(&mut self.engine);
        }
    }

    /// Lets the tasks of the cluster find the node. The first thing to be done once it runs.
    pub(crate) fn begin_cluster(&mut self, node: &Shared) {
        if let Some(cluster) = &mut self.cluster {
            cluster.node = node.downgrade();
            // What the start took is no standstill.
            cluster.looked = clock::now();
            self.settle_cluster();
        }
    }

    /// Lets the member know of something, and does what comes of it.
    pub(crate) fn cluster_event(&mut self, event: Event) {
        // Whatever task comes first after a standstill, its news are not weighed before that is known.
        self.look_at_clock(clock::now());
        if let Some(cluster) = &mut self.cluster {
            cluster.member.handle(present(), event, &mut self.engine);
            self.settle_cluster();
        }
    }

    /// Before anything else is done in a step: has the node stood still since the last one?
    #[inline]
    pub(crate) fn look_at_clock(&mut self, now: Time) {
        if let Some(cluster) = &mut self.cluster {
            let last = std::mem::replace(&mut cluster.looked, now);
            if now > last.after(cluster.unnoticed) {
                self.woke(now, last);
            }
        }
    }

    #[cold]
    fn woke(&mut self, now: Time, last: Time) {
        let paused = now.0.saturating_sub(last.0) / 1000;
        now_and_then!(
            warn,
            "this node stood still for {paused} ms; looking at its peers first"
        );
        self.cluster_event(Event::Woke);
    }

    /// What is due by now: heartbeats, silences, requests that were parked for too long.
    pub(crate) fn tick_cluster(&mut self, now: Time) -> bool {
        let Some(cluster) = &mut self.cluster else {
            return false;
        };
        if cluster.member.next_deadline().is_some_and(|due| due <= now) {
            self.cluster_event(Event::Tick);
        }
        self.give_up_waiting(now);
        self.deliver();
        self.refuse_overdue(now)
    }

    /// Does what the member asks for, until it asks for nothing more.
    pub(super) fn settle_cluster(&mut self) {
        self.note_whole(super::state::now());
        while let Some(output) = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.member.poll_output())
        {
            match output {
                Output::WriteTerm { term } => self.write_term(term),
                Output::Connect { to } => self.connect_to(to),
                Output::Stance(stance) => self.take_stance(stance),
                Output::Exit => self.exit_cluster(),
                Output::Note(note) => self.note(&note),
            }
        }
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        let now = present();
        // Whoever confirms what was told does not cut short what is being collected since.
        if self.engine.changes_waiting() == 0 || cluster.may_tell(now.time) {
            cluster.replicate(now, &mut self.engine);
        }
        cluster.wake_links(false);
        self.tell_confirmed();
        let Some(cluster) = &self.cluster else {
            return;
        };
        self.role = role_of(cluster.member.stage());
        self.terms.opened(self.engine.term());
        self.deliver();
        self.tell_lasting();
        self.flush_others(super::state::now());
        self.rearm();
        self.timer.wake_before(self.next_journal_step());
        self.timer.wake_before(
            self.cluster
                .as_ref()
                .and_then(|cluster| cluster.next_deadline()),
        );
    }

    fn exit_cluster(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.over = true;
            cluster.ending.notify_one();
        }
    }

    /// Writes a term in the background, and tells the member how that went.
    fn write_term(&mut self, term: u32) {
        let Some(write) = self.terms.write(term) else {
            return self.term_done(term, Ok(()));
        };
        let Some(node) = self.shared() else { return };
        tokio::spawn(async move {
            let outcome = tokio::task::spawn_blocking(move || write.write_through()).await;
            let outcome = outcome.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            node.lock().term_done(term, outcome);
        });
    }

    fn term_done(&mut self, term: u32, outcome: std::io::Result<()>) {
        let event = match outcome {
            Ok(()) => {
                self.terms.noted(term);
                Event::TermWritten { term }
            }
            Err(error) => {
                now_and_then!(error, "cannot write term {term}: {error}");
                Event::TermFailed { term }
            }
        };
        self.cluster_event(event);
    }

    /// The term to be written while the counter of the present one still lasts.
    pub(crate) fn term_to_prepare(&mut self) -> Option<TermWrite> {
        let Some(cluster) = &self.cluster else {
            return self.terms.to_write();
        };
        let term = cluster.member.next_term(present())?;
        Some(self.terms.write_of(term))
    }

    fn shared(&self) -> Option<Shared> {
        self.cluster.as_ref()?.node.upgrade()
    }

    fn note(&mut self, note: &Note) {
        match note {
            Note::Stage(stage, why) => {
                let term = self.engine.term();
                let Some(cluster) = &mut self.cluster else {
                    return;
                };
                let after = match stage {
                    Stage::Active => format!("active, term {term}"),
                    Stage::Standby => {
                        format!("standby of {}", cluster.active().unwrap_or("nobody"))
                    }
                    Stage::Leaving => {
                        let own = cluster.member.members().own();
                        match cluster.member.active().filter(|slot| *slot != own) {
                            Some(slot) => format!("leaving, {} is active", cluster.public(slot)),
                            None => "leaving".to_owned(),
                        }
                    }
                    Stage::Starting | Stage::Candidate | Stage::HandingOver => {
                        return tracing::info!("{note}");
                    }
                };
                tracing::info!("{} → {after}: {why}", cluster.noted);
                cluster.noted = after;
            }
            Note::HandoffFailed(to) => {
                let to = self
                    .cluster
                    .as_ref()
                    .map_or("-", |cluster| cluster.public(*to));
                now_and_then!(warn, "{to} did not take over; this node goes on");
            }
            Note::CannotWrite(_) | Note::TermsUsedUp | Note::Incomplete => {
                now_and_then!(error, "{note}");
            }
        }
    }
}
