//! What a run is like: how many nodes and clients, which faults, which times. Everything follows from
//! the seed.

use crate::random::Random;
use fairlock::cluster::Timing;
use fairlock::protocol::Millis;
use fairlock::simulation::Mutation;

pub(crate) const MS: u64 = 1000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// Which faults a run has. The fewer, the more the checker may ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Profile {
    /// Nodes are stopped in order and started again, one at a time, and never the last: no call may fail
    /// and no lock may be lost.
    Stops,
    /// One node at a time is killed or frozen, and the cluster gets time to settle: at most one node
    /// serves at any moment, and what was copied stays.
    Single,
    /// Links between nodes are cut and healed: two nodes may serve meanwhile, and no grant is lost.
    Cuts,
    /// Everything at once.
    Wild,
}

/// What a run is like.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) profile: Profile,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) timing: Timing,
    /// How long faults happen.
    pub(crate) faults_for: u64,
    /// Between two faults, at least and at most.
    pub(crate) pause: (u64, u64),
    /// Of a way between two machines, at least and at most.
    pub(crate) delay: (u64, u64),
    /// How far a clock runs ahead or behind, in millionths.
    pub(crate) drift: u64,
    /// How far a wall clock is ahead or behind, in seconds.
    pub(crate) wall_error: u64,
    /// Between two things that a client does.
    pub(crate) pace: (u64, u64),
    pub(crate) leases: (u64, u64),
    /// Frames about roles are lost and doubled on their way.
    pub(crate) loose_frames: bool,
    /// Nodes have lists that differ and agree.
    pub(crate) lists_differ: bool,
    /// One node begins with a list that contradicts the others'.
    pub(crate) list_contradicts: bool,
    /// Standbys confirm at once, as where grants wait for them.
    pub(crate) confirm_at_once: bool,
    pub(crate) mutation: Mutation,
    /// What the simulated world itself breaks on purpose.
    pub(crate) harm: Harm,
}

/// Rules of the simulated node, broken on purpose to show that the checker sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Harm {
    /// Nothing.
    #[default]
    None,
    /// A term that could not be written counts as written.
    TermNotWritten,
    /// Every answer to an acquire is sent twice.
    AnswerTwice,
    /// Answers to releases get lost.
    AnswerNever,
    /// The register takes every write.
    NoFence,
    /// A connection that breaks is not told to the engine.
    NeverDisconnect,
    /// A standby serves.
    StandbyServes,
    /// What clients say of terms is ignored.
    DeafToClients,
}

impl Harm {
    /// All but nothing.
    pub const ALL: [Harm; 7] = [
        Harm::TermNotWritten,
        Harm::AnswerTwice,
        Harm::AnswerNever,
        Harm::NoFence,
        Harm::NeverDisconnect,
        Harm::StandbyServes,
        Harm::DeafToClients,
    ];
}

impl Plan {
    pub(crate) fn new(seed: u64, random: &mut Random) -> Plan {
        let profile = match seed % 8 {
            0 => Profile::Stops,
            1 | 2 => Profile::Single,
            3 => Profile::Cuts,
            _ => Profile::Wild,
        };
        let fewest = if profile == Profile::Wild { 1 } else { 2 };
        let nodes = random.between(fewest, 5) as usize;
        let clients = match random.below(4) {
            0 => random.between(1, 3),
            1 | 2 => random.between(3, 8),
            _ => random.between(8, 20),
        } as usize;
        let timing = Timing {
            preempt_delay_max: Millis(if random.once_in(40) { 300_000 } else { 8_000 }),
            calm: Millis(if random.once_in(2) { 600_000 } else { 30_000 }),
            preempt: !random.once_in(10),
            ..Timing::default()
        };
        let (faults_for, pause) = match profile {
            Profile::Stops => (random.between(15, 30) * SECOND, (4 * SECOND, 8 * SECOND)),
            Profile::Single => (random.between(20, 40) * SECOND, (5 * SECOND, 9 * SECOND)),
            Profile::Cuts => (random.between(20, 40) * SECOND, (5 * SECOND, 8 * SECOND)),
            Profile::Wild => {
                let slow = random.between(300, 4000) * MS;
                (random.between(8, 25) * SECOND, (50 * MS, slow))
            }
        };
        let wild = profile == Profile::Wild;
        let delay = match random.below(4) {
            0 => (50, 400),
            1 | 2 => (100, 3 * MS),
            _ if wild => (MS, 60 * MS),
            _ => (MS, 10 * MS),
        };
        Plan {
            profile,
            nodes,
            clients,
            keys: random.between(1, 6) as usize,
            timing,
            faults_for,
            pause,
            delay,
            drift: *random
                .pick(&[0, 100, 5_000, 20_000])
                .expect("there are four"),
            wall_error: *random.pick(&[0, 1, 60, 100_000]).expect("there are four"),
            pace: if random.once_in(4) {
                (2 * MS, 60 * MS)
            } else {
                (30 * MS, 500 * MS)
            },
            leases: *random
                .pick(&[(1000, 3000), (1000, 8000), (4000, 12_000)])
                .expect("there are three"),
            loose_frames: wild && random.once_in(3),
            lists_differ: random.once_in(6),
            list_contradicts: wild && random.once_in(12),
            confirm_at_once: random.once_in(3),
            mutation: Mutation::None,
            harm: Harm::None,
        }
    }
}
