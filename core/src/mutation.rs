//! Rules that the simulation breaks on purpose, one at a time, to show that its checker would see it.
//! Without the feature `simulation` nothing is ever broken, and the compiler removes the question.

/// One rule that is broken on purpose, or none.
// A client without a server asks for a few of them only.
#[cfg_attr(not(feature = "simulation"), allow(dead_code, unreachable_pub))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mutation {
    /// Everything is as it should be.
    #[default]
    None,
    /// A node that becomes active goes on in the term it knows.
    SkipTermBump,
    /// Every node takes its tokens as if it were the first in the list.
    SameSlot,
    /// Standbys are not told of releases.
    ForgetReleases,
    /// Standbys are not told of those that wait.
    ForgetQueues,
    /// A lock goes to the head of the queue although its connection is gone.
    GrantToDead,
    /// The last of the queue is served first.
    LastComeFirstServed,
    /// The end of a wait is not noticed.
    NeverTimeOut,
    /// Leases end after half of their time.
    EndLeasesEarly,
    /// A key that nobody holds or waits for is kept.
    KeepIdleKeys,
    /// A part of the state is taken for the whole.
    PromoteIncomplete,
    /// An active node does not mind another one.
    NeverYield,
    /// A node that steps down gives nothing of what it has granted.
    GiveNothing,
    /// A node that hands over does not stand still meanwhile.
    ServeOnInHandoff,
    /// A node that wakes up goes on as if it had not slept.
    TrustThePast,
    /// Neither a gap in the copied changes nor a new link makes a standby ask for the whole state.
    IgnoreGaps,
    /// Better nodes never get the active place.
    NeverPreempt,
    /// A client tells of the loss of a lock only after its end.
    TellLossesLate,
    /// A client does not give back what is granted to calls that are over.
    KeepStrayGrants,
}

impl Mutation {
    /// All but nothing.
    #[cfg(feature = "simulation")]
    pub const ALL: [Mutation; 18] = [
        Mutation::SkipTermBump,
        Mutation::SameSlot,
        Mutation::ForgetReleases,
        Mutation::ForgetQueues,
        Mutation::GrantToDead,
        Mutation::LastComeFirstServed,
        Mutation::NeverTimeOut,
        Mutation::EndLeasesEarly,
        Mutation::KeepIdleKeys,
        Mutation::PromoteIncomplete,
        Mutation::NeverYield,
        Mutation::GiveNothing,
        Mutation::ServeOnInHandoff,
        Mutation::TrustThePast,
        Mutation::IgnoreGaps,
        Mutation::NeverPreempt,
        Mutation::TellLossesLate,
        Mutation::KeepStrayGrants,
    ];

    /// Whether this rule is the broken one.
    #[must_use]
    #[inline]
    #[cfg_attr(not(feature = "simulation"), allow(unreachable_pub))]
    pub const fn is(self, broken: Mutation) -> bool {
        cfg!(feature = "simulation") && self as u8 == broken as u8
    }
}
