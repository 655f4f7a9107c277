//! What operators are shown, as plain objects.

use fairlock::{HeldLock, KeyState, LockPage, Status, Waiter, Waiters};
use napi::bindgen_prelude::{BigInt, Uint8Array};
use napi_derive::napi;
use std::time::Duration;

/// A key that is held, or free.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct KeyView {
    pub held: bool,
    pub waiters: f64,
    pub token: Option<BigInt>,
    pub remaining_ms: Option<f64>,
    pub name: Option<String>,
    pub address: Option<String>,
}

/// A key that is held, in a list.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct LockView {
    pub key: String,
    pub key_bytes: Uint8Array,
    pub token: BigInt,
    pub remaining_ms: f64,
    pub waiters: f64,
    pub name: Option<String>,
    pub address: String,
}

/// A part of the list, and where the next one begins.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct LocksView {
    pub locks: Vec<LockView>,
    pub next: Option<Uint8Array>,
}

/// One who waits.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct WaiterView {
    pub position: f64,
    pub waited_ms: f64,
    pub name: Option<String>,
    pub address: String,
}

/// The head of a queue and its length.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct WaitersView {
    pub count: f64,
    pub first: Vec<WaiterView>,
}

/// What a server says of itself.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct StatusView {
    pub role: String,
    pub node: String,
    pub active: Option<String>,
    pub term: u32,
    pub held: f64,
    pub waiting: f64,
    pub connections: f64,
    pub standbys: Vec<String>,
    pub peers: Vec<String>,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Names and keys are bytes and nearly always text; what is not is shown as well as it can be.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

impl From<KeyState> for KeyView {
    fn from(state: KeyState) -> KeyView {
        match state {
            KeyState::Free { waiters } => KeyView {
                held: false,
                waiters: waiters as f64,
                token: None,
                remaining_ms: None,
                name: None,
                address: None,
            },
            KeyState::Held(lock) => KeyView {
                held: true,
                waiters: lock.waiters as f64,
                token: Some(BigInt::from(lock.token.get())),
                remaining_ms: Some(ms(lock.remaining)),
                name: lock.name.map(text),
                address: Some(lock.address),
            },
        }
    }
}

impl From<HeldLock> for LockView {
    fn from(lock: HeldLock) -> LockView {
        LockView {
            key: text(lock.key.clone()),
            key_bytes: Uint8Array::new(lock.key),
            token: BigInt::from(lock.token.get()),
            remaining_ms: ms(lock.remaining),
            waiters: lock.waiters as f64,
            name: lock.name.map(text),
            address: lock.address,
        }
    }
}

impl From<LockPage> for LocksView {
    fn from(page: LockPage) -> LocksView {
        LocksView {
            locks: page.locks.into_iter().map(LockView::from).collect(),
            next: page.next.map(Uint8Array::new),
        }
    }
}

impl From<Waiter> for WaiterView {
    fn from(waiter: Waiter) -> WaiterView {
        WaiterView {
            position: waiter.position as f64,
            waited_ms: ms(waiter.waited),
            name: waiter.name.map(text),
            address: waiter.address,
        }
    }
}

impl From<Waiters> for WaitersView {
    fn from(waiters: Waiters) -> WaitersView {
        WaitersView {
            count: waiters.count as f64,
            first: waiters.first.into_iter().map(WaiterView::from).collect(),
        }
    }
}

impl From<Status> for StatusView {
    fn from(status: Status) -> StatusView {
        StatusView {
            role: status.role.to_string(),
            node: status.node,
            active: status.active,
            term: status.term,
            held: status.held as f64,
            waiting: status.waiting as f64,
            connections: status.connections as f64,
            standbys: status.standbys,
            peers: status.peers,
        }
    }
}
