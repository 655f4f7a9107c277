//! The loads that `bench` knows.

use clap::ValueEnum;

/// A load.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) connections: u32,
    /// Requests under way on each connection.
    pub(super) depth: u32,
    /// How many keys are held, requests wait or leases end, where that is what the load is about.
    pub(super) count: u32,
}

/// What a load does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each worker takes and gives back a key of its own: nobody waits for anybody.
    OwnKeys,
    /// All want the same key: what counts is the hand-over.
    HotKey,
    /// Many keys are taken and held.
    Held,
    /// Many requests wait for one key, and then get it one after the other.
    Queue,
    /// Many leases end at the same moment, a waiting request behind each.
    Expiry,
}

/// A load, as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Name {
    /// One connection, one request at a time
    Single,
    /// 64 connections, one request at a time on each
    Connections,
    /// 4 connections, 64 requests under way on each
    Pipelined,
    /// 16 connections hand one key round
    HotKey,
    /// 100,000 keys are held: bytes a key
    Held,
    /// 10,000 requests wait for one key and get it in turn
    Queue,
    /// 10,000 leases end together, with a waiting request behind each
    Expiry,
}

impl Name {
    pub(super) fn workload(self) -> Workload {
        let (name, kind, connections, depth, count) = match self {
            Name::Single => ("single", Kind::OwnKeys, 1, 1, 0),
            Name::Connections => ("connections", Kind::OwnKeys, 64, 1, 0),
            Name::Pipelined => ("pipelined", Kind::OwnKeys, 4, 64, 0),
            Name::HotKey => ("hot-key", Kind::HotKey, 16, 1, 0),
            Name::Held => ("held", Kind::Held, 4, 64, 100_000),
            Name::Queue => ("queue", Kind::Queue, 4, 64, 10_000),
            Name::Expiry => ("expiry", Kind::Expiry, 4, 64, 10_000),
        };
        Workload {
            name,
            kind,
            connections,
            depth,
            count,
        }
    }
}
