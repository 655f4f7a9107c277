//! Replies to acquires that wait until the grant is on disk (`journal_sync`), and then until enough standbys
//! have it (`sync_standbys`).
//!
//! A standby that takes longer than `failure_timeout` does not count until it has caught up. With too
//! few that count the node goes on and says so, or with `sync_strict` takes the grant back.

use super::{Cluster, Node, Stance};
use crate::cluster::HeldGrant;
use crate::engine::{ConnectionId, Grant, Time};
use crate::node::log::now_and_then;
use crate::node::state::now;
use crate::protocol::{Code, KeyRef, Operation, Reply, Tag};

impl Node {
    /// A grant was made, or asked for again, on a node whose replies wait for standbys.
    #[cold]
    pub(crate) fn hold_back(
        &mut self,
        now: Time,
        connection: ConnectionId,
        key: KeyRef<'_>,
        grant: Grant,
        tag: Option<Tag>,
    ) {
        let grant = HeldGrant {
            connection,
            key: key.to_key(),
            grant,
            tag,
        };
        match &mut self.journal {
            Some(journal) if journal.holds_back() => journal.hold(now, &self.engine, grant),
            _ => self.hold_for_standbys(now, grant),
        }
    }

    /// Goes on with grants that are on disk, or will never be.
    pub(crate) fn tell_lasting(&mut self) {
        let serves = |cluster: &Cluster| cluster.stance == Stance::Serve;
        while self.cluster.as_ref().is_none_or(serves)
            && let Some(journal) = &mut self.journal
            && let Some(grant) = journal.pop_lasting()
        {
            self.hold_for_standbys(now(), grant);
        }
    }

    /// The next grant that waits, whatever for.
    fn pop_held(&mut self) -> Option<HeldGrant> {
        let for_standbys = self.cluster.as_mut().and_then(|cluster| cluster.held.pop());
        for_standbys.or_else(|| self.journal.as_mut()?.pop_held())
    }

    fn hold_for_standbys(&mut self, now: Time, grant: HeldGrant) {
        let wanted = self.settings.sync_standbys as usize;
        let Some(cluster) = self.cluster.as_mut().filter(|_| wanted > 0) else {
            return self.tell_of_grant(now, &grant);
        };
        if cluster.member.counting_standbys() < wanted {
            return self.without_standbys(now, &grant);
        }
        let first = cluster.held.next_deadline().is_none();
        cluster.held.hold(now, grant);
        cluster.note_told(&self.engine);
        if first {
            self.timer.wake_before(cluster.held.next_deadline());
        }
    }

    /// Tells clients of the grants that enough standbys have by now.
    pub(super) fn tell_confirmed(&mut self) {
        let wanted = self.settings.sync_standbys as usize;
        let serves = |cluster: &&mut Cluster| cluster.stance == Stance::Serve;
        let Some(cluster) = self.cluster.as_mut().filter(|_| wanted > 0).filter(serves) else {
            return;
        };
        let now = now();
        cluster.note_told(&self.engine);
        match cluster.member.confirmed_by(wanted) {
            Some(confirmed) => {
                while let Some(cluster) = &mut self.cluster
                    && let Some(grant) = cluster.held.pop_confirmed(confirmed)
                {
                    self.tell_of_grant(now, &grant);
                }
            }
            None => {
                while let Some(cluster) = &mut self.cluster
                    && let Some(grant) = cluster.held.pop()
                {
                    self.without_standbys(now, &grant);
                }
            }
        }
    }

    /// Deals with grants that no standby has confirmed in time.
    pub(super) fn give_up_waiting(&mut self, now: Time) {
        while let Some(cluster) = &mut self.cluster
            && cluster.stance == Stance::Serve
            && let Some((sequence, grant)) = cluster.held.pop_overdue(now)
        {
            if let Some(sequence) = sequence {
                cluster.member.standbys_lag(sequence);
            }
            self.without_standbys(now, &grant);
        }
    }

    /// The node stops and nobody takes over: nothing is left to wait for.
    pub(super) fn answer_held(&mut self) {
        while let Some(grant) = self.pop_held() {
            self.without_standbys(now(), &grant);
        }
    }

    /// The node does not serve any more, so whoever does has to answer.
    pub(super) fn move_held(&mut self) {
        let Some(address) = self.active.clone() else {
            return;
        };
        while let Some(grant) = self.pop_held() {
            let reply = Reply::Moved {
                operation: Operation::Acquire,
                key: grant.key.spelling(),
                address: &address,
                tag: grant.tag,
            };
            self.tell(grant.connection, &reply);
        }
    }

    /// Fewer standbys than there should be have the grant.
    fn without_standbys(&mut self, now: Time, grant: &HeldGrant) {
        let wanted = self.settings.sync_standbys;
        let strict = self.settings.sync_strict;
        let outcome = if strict {
            "they are refused"
        } else {
            "the node goes on"
        };
        now_and_then!(
            warn,
            "fewer than {wanted} standbys have the latest grants (sync_standbys); {outcome}"
        );
        if !strict {
            return self.tell_of_grant(now, grant);
        }
        self.engine
            .release(now, grant.key.as_ref(), grant.grant.token);
        self.refuse_grant(
            grant,
            "too few standbys have the grant (sync_standbys), so it was taken back",
        );
    }

    /// Answers the request; the lease begins now.
    fn tell_of_grant(&mut self, now: Time, grant: &HeldGrant) {
        if !self.engine.begin_lease(now, grant.grant) {
            return self.refuse_grant(
                grant,
                "the lease ended before enough standbys had the grant",
            );
        }
        let (key, token, tag) = (grant.key.as_ref(), grant.grant.token, grant.tag);
        self.tell(grant.connection, &Reply::Granted { key, token, tag });
    }

    fn refuse_grant(&mut self, grant: &HeldGrant, text: &str) {
        let (key, code) = (grant.key.spelling(), Code::Unavailable);
        let reply = Reply::refused(Operation::Acquire, key, code, grant.tag, text);
        self.tell(grant.connection, &reply);
    }
}
