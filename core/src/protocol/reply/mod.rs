//! Replies: what a node says, as values. How they are written and read as lines lies beside.

mod encode;
mod parse;

use super::code::Code;
use super::key::{KeyRef, NameRef, Prefix};
use super::number::{Millis, Tag, Token};
use super::request::Refusal;
use std::fmt;

/// What a node is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It does not know yet.
    Starting,
    /// It copies the active node and serves nobody.
    Standby,
    /// It serves.
    Active,
    /// It is about to stop.
    Leaving,
}

impl Role {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Starting => "starting",
            Role::Standby => "standby",
            Role::Active => "active",
            Role::Leaving => "leaving",
        }
    }

    fn parse(word: &str) -> Option<Role> {
        [Role::Starting, Role::Standby, Role::Active, Role::Leaving]
            .into_iter()
            .find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The operation that a reply belongs to: with the key it tells replies apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// `A`
    Acquire,
    /// `R`
    Release,
    /// `K`
    Keep,
    /// `C`
    Cancel,
    /// `I`
    Inspect,
    /// `W`
    Waiters,
    /// `L`
    List,
    /// `H`
    Hello,
    /// `P`
    Ping,
    /// `S`
    Status,
}

impl Operation {
    const ALL: [(Operation, u8); 10] = [
        (Operation::Acquire, b'A'),
        (Operation::Release, b'R'),
        (Operation::Keep, b'K'),
        (Operation::Cancel, b'C'),
        (Operation::Inspect, b'I'),
        (Operation::Waiters, b'W'),
        (Operation::List, b'L'),
        (Operation::Hello, b'H'),
        (Operation::Ping, b'P'),
        (Operation::Status, b'S'),
    ];

    /// The letter on the wire.
    #[must_use]
    pub fn letter(self) -> u8 {
        Operation::ALL
            .iter()
            .find(|(operation, _)| *operation == self)
            .map_or(b'?', |(_, letter)| *letter)
    }

    /// The operation with this letter.
    #[must_use]
    pub fn of_letter(letter: u8) -> Option<Operation> {
        Operation::ALL
            .iter()
            .find(|(_, candidate)| *candidate == letter)
            .map(|(operation, _)| *operation)
    }
}

/// A reply, or the one line that a node sends unasked. Its fields borrow from the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// `A`: granted with this token.
    Granted {
        /// What is locked now.
        key: KeyRef<'a>,
        /// Of the grant.
        token: Token,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `T`: not within the wait, and nothing was granted.
    TimedOut {
        /// What is not locked.
        key: KeyRef<'a>,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `R … ok` or `R … stale`.
    Released {
        /// What was to be released.
        key: KeyRef<'a>,
        /// False if the token did not hold the key.
        ok: bool,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `K … ok` or `K … stale`.
    Kept {
        /// What was to be kept.
        key: KeyRef<'a>,
        /// False if the token does not hold the key.
        ok: bool,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `C … ok` or `C … none`.
    Cancelled {
        /// Of the acquire.
        key: KeyRef<'a>,
        /// False if there was no such acquire.
        found: bool,
        /// Of the acquire.
        tag: Tag,
    },
    /// `I … free`.
    Free {
        /// What was asked for.
        key: KeyRef<'a>,
        /// How many wait (for a head that has lost its connection).
        waiters: u64,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `I … held`.
    Held {
        /// The key and its holder.
        holder: Holder<'a>,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `w`: one who waits.
    WaiterRow {
        /// For what.
        key: KeyRef<'a>,
        /// From 1.
        position: u64,
        /// Since when.
        waited: Millis,
        /// Of the client.
        name: NameRef<'a>,
        /// Of the client.
        address: &'a str,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `W`: the end of the rows.
    Waiters {
        /// What was asked for.
        key: KeyRef<'a>,
        /// The length of the queue.
        count: u64,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `l`: one held key.
    LockRow {
        /// The key and its holder.
        holder: Holder<'a>,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `L`: the end of the rows.
    Listed {
        /// What was asked for.
        prefix: Prefix<'a>,
        /// The number of rows.
        count: u64,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `H`: who answers.
    Hello(HelloReply<'a>),
    /// `P`: alive.
    Pong {
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `S`: one line about the node.
    Status(StatusReply<'a>),
    /// `M`: nothing was done; ask the active node.
    Moved {
        /// Of the request.
        operation: Operation,
        /// The key or prefix of the request.
        key: &'a [u8],
        /// Of the active node.
        address: &'a str,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `N`: the active node is now at this address.
    ActiveAt {
        /// Of the active node.
        address: &'a str,
    },
    /// `E`: refused, and nothing was done.
    Refused {
        /// Of the request, if it could be read.
        operation: Option<Operation>,
        /// The key or prefix of the request, or `-`.
        key: &'a [u8],
        /// Why; words of later versions are kept as they came.
        code: &'a str,
        /// Of the request.
        tag: Option<Tag>,
        /// The same for people.
        text: &'a str,
    },
}

/// A held key and who holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder<'a> {
    /// What is locked.
    pub key: KeyRef<'a>,
    /// Of the grant.
    pub token: Token,
    /// What is left of the lease.
    pub remaining: Millis,
    /// The length of the queue.
    pub waiters: u64,
    /// Of the client that holds it.
    pub name: NameRef<'a>,
    /// Of the client that holds it.
    pub address: &'a str,
}

/// What a node says of itself in answer to a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloReply<'a> {
    /// What the node is.
    pub role: Role,
    /// Its own address.
    pub node: &'a str,
    /// The active node, if the node knows it.
    pub active: Option<&'a str>,
    /// The nodes of the cluster in the order of their priority.
    pub peers: AddressList<'a>,
    /// The version of the server program.
    pub server: &'a str,
}

/// A node's state in one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusReply<'a> {
    /// What the node is.
    pub role: Role,
    /// Its own address.
    pub node: &'a str,
    /// The active node, if the node knows it.
    pub active: Option<&'a str>,
    /// The term of its tokens.
    pub term: u32,
    /// How many keys are held.
    pub held: u64,
    /// How many requests wait.
    pub waiting: u64,
    /// How many connections there are.
    pub connections: u64,
    /// The standbys that have a copy of the state.
    pub standbys: AddressList<'a>,
}

/// Addresses in one field, separated by commas; `-` for none, and for a place without a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressList<'a>(pub &'a str);

impl<'a> AddressList<'a> {
    /// The addresses that are there.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.0
            .split(',')
            .filter(|address| !matches!(*address, "" | "-"))
    }
}

impl<'a> From<Refusal<'a>> for Reply<'a> {
    fn from(refusal: Refusal<'a>) -> Reply<'a> {
        Reply::Refused {
            operation: Operation::of_letter(refusal.op),
            key: refusal.key,
            code: refusal.code.as_str(),
            tag: refusal.tag,
            text: refusal.text,
        }
    }
}

impl<'a> Reply<'a> {
    /// A refusal with one of the known codes.
    #[must_use]
    pub fn refused(
        operation: Operation,
        key: &'a [u8],
        code: Code,
        tag: Option<Tag>,
        text: &'a str,
    ) -> Reply<'a> {
        Reply::Refused {
            operation: Some(operation),
            key,
            code: code.as_str(),
            tag,
            text,
        }
    }
}
