//! What is looked at while nodes work: terms, grants, leases, and who serves beside whom.

use crate::checker::Rule;
use crate::network::Machine;
use crate::plan::{MS, Profile};
use crate::world::World;
use fairlock::cluster::{Note, Stage, Stance};

impl World {
    /// Ends what is over by now on a node that serves. A client has to know before.
    pub(crate) fn expire(&mut self, node: usize) {
        let now = self.node_now(node);
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        let serves = match process.stance {
            Stance::Serve => true,
            Stance::Leave(None) => process.was_active,
            Stance::Park | Stance::Freeze | Stance::Redirect(_) | Stance::Leave(Some(_)) => false,
        };
        let due = process.engine.next_deadline();
        if self.hosts[node].reads_first || !serves || due.is_none_or(|due| due > now.time) {
            return;
        }
        let believed: Vec<_> = self
            .believed()
            .into_iter()
            .filter(|(_, key, token)| {
                let key = crate::client::key(*key);
                process.engine.grant_of(key.as_ref(), *token).is_some()
            })
            .collect();
        let ended = process.engine.stats().expired;
        self.work(node, |process, work| {
            while process.engine.expire(now.time, 1000) {}
            let stats = process.engine.stats();
            for _ in ended..stats.expired {
                work.coverage.count("lease ended");
            }
            process.deliver(work);
        });
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        for (client, key, token) in believed {
            let spelled = crate::client::key(key);
            let grants = &self.checker.tokens.grants;
            let granted = grants.get(&token.get()).map_or(0, |grant| grant.at);
            if self.checker.holders.is_split_since(granted) {
                // It may have been kept on the other side.
                continue;
            }
            if process.engine.grant_of(spelled.as_ref(), token).is_none() {
                self.checker.fail(Rule::ToldInTime, self.now, || {
                    format!("node {node} ends {token} of key {key}, and client {client} has not been told")
                });
            }
        }
    }

    /// Every grant that the engine has counted must have been answered to somebody in the same step.
    pub(crate) fn check_grants(&mut self, node: usize) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let granted = process.engine.stats().granted;
        let told = std::mem::take(&mut process.told);
        let new = granted - std::mem::replace(&mut process.granted, granted);
        if new != told {
            self.checker.fail(Rule::GrantedToSomebody, self.now, || {
                format!("node {node} has granted {new} locks and told {told} clients")
            });
        }
        self.steps += 1;
        if self.steps.is_multiple_of(64) {
            self.check_engine(node);
        }
    }

    pub(crate) fn check_engine(&self, node: usize) {
        if let Some(process) = &self.hosts[node].process {
            process.engine.check_invariants();
        }
    }

    pub(crate) fn note_known_term(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let known = host
            .process
            .as_ref()
            .map(|process| process.member.known_term());
        if let Some(known) = known
            && host.knew.last().is_none_or(|(_, last)| *last != known)
        {
            host.knew.push((self.now, known));
        }
    }

    /// Follows the terms that a node opens, and the end of its being active.
    pub(crate) fn track_term(&mut self, node: usize) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let active = matches!(process.member.stage(), Stage::Active | Stage::HandingOver);
        let term = active.then(|| process.engine.stats().term);
        if process.term == term {
            return;
        }
        let before = std::mem::replace(&mut process.term, term);
        match term {
            Some(term) => {
                if before.is_some() {
                    self.coverage.count("term raised");
                } else {
                    let copied = process.copied.map(usize::from);
                    let exact = self.plan.profile != Profile::Wild;
                    self.checker.order.begin(node, copied, exact);
                }
                let blind = self.is_blind(node);
                let opened = self.checker.tokens.open(self.now, node, term, blind);
                if opened.is_err() || self.checker.tokens.highest_term() >= term {
                    self.coverage.count("every belt cut");
                }
                self.checker.take(self.now, Rule::TermsRise, opened);
                self.say(|| format!("node {node} opens term {term}"));
            }
            None => self.checker.tokens.close(self.now, node),
        }
    }

    /// Whether nobody could tell this node of the highest term: no living node within reach knows it, and
    /// no client has said it.
    pub(crate) fn is_blind(&self, node: usize) -> bool {
        let term = self.checker.tokens.highest_term();
        let Some(own) = &self.hosts[node].process else {
            return true;
        };
        if own.client_term >= term || own.kept_term >= term {
            return false;
        }
        let steady = self.now.saturating_sub(2_000_000);
        let reachable = (0..self.hosts.len()).any(|other| {
            let host = &self.hosts[other];
            // What it has just heard is still on its way.
            let told = self.now.saturating_sub(500 * MS);
            let knew = host.knew.iter().rev().find(|(since, _)| *since < told);
            let knows = host.process.is_some() && knew.is_some_and(|(_, knew)| *knew >= term);
            other != node
                && knows
                && !host.is_frozen()
                && self.accepts_peer(node, other)
                && host.steady_since < steady
                && self.hosts[node].woken_at < steady
                && self
                    .network
                    .is_steady(Machine::Node(node), Machine::Node(other), steady)
        });
        !reachable || self.plan.loose_frames
    }

    /// Where two nodes serve at once, and where that must not be.
    pub(crate) fn watch_serving(&mut self) {
        let serving = self.hosts.iter().filter(|host| host.serves()).count();
        let were = std::mem::replace(&mut self.serving, serving);
        if serving > 1 || were > 1 {
            if were <= 1 {
                self.coverage.count("two nodes active");
            }
            self.checker.holders.together(self.now);
            let strict = matches!(self.plan.profile, Profile::Stops | Profile::Single);
            if strict && serving > 1 {
                let nodes: Vec<usize> = (0..self.hosts.len())
                    .filter(|node| self.hosts[*node].serves())
                    .collect();
                self.checker.fail(Rule::OneServes, self.now, || {
                    format!("nodes {nodes:?} serve")
                });
            }
        }
    }

    pub(crate) fn count_note(&mut self, node: usize, note: &Note) {
        match note {
            Note::Stage(Stage::Active, why) if why.starts_with("no other") => {
                // Whatever there was is gone.
                self.checker.holders.lose_all(self.now);
                self.coverage.count("election: start");
            }
            Note::Stage(Stage::Active, why) if why.starts_with("the active node is gone") => {
                self.coverage.count("election: takeover");
            }
            Note::Stage(Stage::Active, _) => self.coverage.count("election: handoff"),
            Note::Stage(Stage::Standby, why) if why.starts_with("another node is active too") => {
                let slept = self.now < self.hosts[node].woken_at + 3_000_000;
                self.coverage.count(if slept {
                    "yield after a sleep"
                } else {
                    "merge"
                });
            }
            Note::Stage(Stage::Standby, why) if why.starts_with("handed over") => {
                self.coverage.count("preempt");
            }
            Note::Incomplete => {
                let better = self.hosts.iter().any(|host| {
                    let process = host.process.as_ref().filter(|_| !host.is_frozen());
                    process.is_some_and(|process| process.member.copy().complete)
                });
                // Where nothing keeps the nodes from each other, this one has no business to serve then.
                if !better || self.plan.profile != Profile::Single {
                    self.checker.holders.lose_all(self.now);
                }
                self.coverage.count("incomplete copy served");
            }
            Note::CannotWrite(_) => self.coverage.count("term not written"),
            Note::HandoffFailed(_) => self.coverage.count("handoff failed"),
            Note::Stage(..) | Note::TermsUsedUp => {}
        }
    }
}
