//! What comes out of the engine: answers at once, effects for other connections and later, and
//! changes for those who keep a copy of the state.

use super::connections::{ConnectionId, Owner};
use super::time::Time;
use crate::protocol::{ClientId, Code, Key, KeyRef, Millis, Tag, Token};
use std::sync::Arc;

/// Names a request inside the engine, from its receipt until it waits and holds no longer. Numbers
/// are used again afterwards. A copy of the state uses the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClaimId(pub(super) u32);

/// A grant, as the caller has to name it if its reply could not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Where the engine finds it.
    pub claim: ClaimId,
    /// Its fencing token.
    pub token: Token,
}

/// What becomes of an acquire at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It holds the key (answer `A`), now or, if it was sent again, still.
    Granted(Grant),
    /// It waits; an [`Effect`] will tell how that ends. No reply yet.
    Queued,
    /// The key is not free and the request does not wait (answer `T`).
    NotHad,
    /// A late copy of a request that has gone on or is over. No reply ever.
    Dropped,
    /// Nothing was done (answer `E`).
    Refused(Refusal),
}

/// Why nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// [`max_keys`](super::EngineSettings::max_keys) is reached.
    Keys,
    /// [`max_waiters_per_key`](super::EngineSettings::max_waiters_per_key) is reached.
    WaitersOfKey,
    /// [`max_waiters`](super::EngineSettings::max_waiters) is reached.
    Waiters,
    /// [`max_waiting_per_connection`](super::EngineSettings::max_waiting_per_connection) is reached.
    WaitingOfConnection,
    /// The term has no token left, and no other term was provided.
    TokensUsedUp,
    /// The node is about to stop.
    Leaving,
    /// Who asked may not lock this key any more.
    Denied,
}

impl Refusal {
    /// The code of the `E` that answers.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Refusal::Keys
            | Refusal::WaitersOfKey
            | Refusal::Waiters
            | Refusal::WaitingOfConnection => Code::Busy,
            Refusal::TokensUsedUp => Code::Internal,
            Refusal::Leaving => Code::Unavailable,
            Refusal::Denied => Code::Denied,
        }
    }

    /// The text of the `E` that answers; it names the limit as the settings do.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Refusal::Keys => "max_keys is reached",
            Refusal::WaitersOfKey => "max_waiters_per_key is reached",
            Refusal::Waiters => "max_waiters is reached",
            Refusal::WaitingOfConnection => "max_waiting_per_connection is reached",
            Refusal::TokensUsedUp => "no fencing token is left in this term",
            Refusal::Leaving => "this node is stopping",
            Refusal::Denied => "this user may not lock this key",
        }
    }
}

/// What is to be done for a connection other than the one whose request was just handled, or later
/// than at once. Effects come in the order in which they happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A waiting request has got the lock (reply `A`).
    Granted {
        /// Whom to tell.
        connection: ConnectionId,
        /// What was locked.
        key: Key,
        /// The grant.
        grant: Grant,
        /// The tag to send back: that of the newest attempt.
        tag: Option<Tag>,
    },
    /// A waiting request has not got the lock in time (reply `T`).
    TimedOut {
        /// Whom to tell.
        connection: ConnectionId,
        /// What was not locked.
        key: Key,
        /// The tag to send back.
        tag: Option<Tag>,
    },
    /// A waiting request was to get the lock and could not be granted it (reply `E`).
    Refused {
        /// Whom to tell.
        connection: ConnectionId,
        /// What was not locked.
        key: Key,
        /// The tag to send back.
        tag: Option<Tag>,
        /// Why.
        refusal: Refusal,
    },
    /// A waiting request is to be sent to the active node (reply `M`): this one is it no longer.
    Moved {
        /// Whom to tell.
        connection: ConnectionId,
        /// What was not locked.
        key: Key,
        /// The tag to send back.
        tag: Option<Tag>,
    },
    /// Half of the term's tokens are used: write the next term down and
    /// [provide](super::Engine::provide_next_term) it. Told once a term.
    TermHalfUsed {
        /// The term that is running out.
        term: u32,
    },
    /// The term that was provided is now the one that tokens are taken from.
    TermOpened {
        /// The new term.
        term: u32,
    },
}

/// A grant as it stands in the state; see [`Change::Granted`].
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// The request.
    pub claim: ClaimId,
    /// What it holds.
    pub key: KeyRef<'a>,
    /// With which token.
    pub token: Token,
    /// Who holds it.
    pub owner: &'a Arc<Owner>,
    /// The tag of its newest attempt.
    pub tag: Option<Tag>,
    /// How long the lease is.
    pub lease: Millis,
    /// When it ends.
    pub ends: Time,
}

impl Holding<'_> {
    /// The same for those who keep it.
    #[must_use]
    pub fn to_change(&self) -> Change {
        Change::Granted {
            claim: self.claim,
            key: self.key.to_key(),
            token: self.token,
            owner: Arc::clone(self.owner),
            tag: self.tag,
            lease: self.lease,
            ends: self.ends,
        }
    }
}

/// What those are told who keep a copy of the state.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A request got its key.
    Granted(Holding<'a>),
    /// Something else has changed.
    Change(&'a Change),
}

/// A change of the state, complete enough to keep a copy of it: applied in order to an engine that
/// had the same state, they lead to the same state again. Times are those of the engine's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A request holds a key: a new one, or one that waited.
    Granted {
        /// The request.
        claim: ClaimId,
        /// What it holds.
        key: Key,
        /// With which token.
        token: Token,
        /// Who holds it.
        owner: Arc<Owner>,
        /// The tag of its newest attempt.
        tag: Option<Tag>,
        /// How long the lease is.
        lease: Millis,
        /// When it ends.
        ends: Time,
    },
    /// The holder gave its grant back, by a release or a cancel.
    Released {
        /// The request that held.
        claim: ClaimId,
        /// Its token.
        token: Token,
    },
    /// The node took a grant back: the lease ended, or its reply could not be delivered.
    Expired {
        /// The request that held.
        claim: ClaimId,
        /// Its token.
        token: Token,
    },
    /// A lease was made longer.
    Kept {
        /// The request that holds.
        claim: ClaimId,
        /// How long the lease is now.
        lease: Millis,
        /// When it ends.
        ends: Time,
    },
    /// A request waits, behind all others for the key.
    Enqueued {
        /// The request.
        claim: ClaimId,
        /// What it waits for.
        key: Key,
        /// Who waits.
        owner: Arc<Owner>,
        /// Its tag.
        tag: Option<Tag>,
        /// The lease it will get.
        lease: Millis,
        /// Since when it waits.
        since: Time,
        /// When its wait ends.
        ends: Time,
    },
    /// A request waits no longer and holds nothing: timed out, cancelled, refused, or lost.
    Left {
        /// The request.
        claim: ClaimId,
    },
    /// A request that waits or holds was sent again.
    Resent {
        /// The request.
        claim: ClaimId,
        /// By whom, now.
        owner: Arc<Owner>,
        /// The number of the newest attempt.
        attempt: u32,
        /// How long its lease is or will be.
        lease: Millis,
        /// When its wait or its lease ends.
        ends: Time,
    },
    /// The attempt number of a request that is over, or was never seen, is to be remembered.
    AttemptRemembered {
        /// Whose request.
        client: ClientId,
        /// Its number.
        number: u64,
        /// The highest attempt seen.
        attempt: u32,
        /// Since when.
        at: Time,
    },
    /// Tokens are taken from a new term.
    TermOpened {
        /// The term.
        term: u32,
    },
}
