//! A held lock, which JavaScript names by number. Dropping it releases it in the background: a lock of the core does so.

use crate::bridge::{Begun, bridge};
use crate::convert::milliseconds;
use crate::outcome::Failure;
use fairlock::Error;
use napi::{Env, Result};
use napi_derive::napi;

/// The lease.
#[napi(catch_unwind)]
pub(crate) fn lock_lease_ms(at: u32, lock: u32) -> Result<f64> {
    bridge(at)?.with_lock(lock, |lock| lock.lease().as_secs_f64() * 1000.0)
}

/// What is left of it.
#[napi(catch_unwind)]
pub(crate) fn lock_remaining_ms(at: u32, lock: u32) -> Result<f64> {
    bridge(at)?.with_lock(lock, |lock| lock.remaining().as_secs_f64() * 1000.0)
}

/// Whether it is held, as far as this process knows.
#[napi(catch_unwind)]
pub(crate) fn lock_held(at: u32, lock: u32) -> Result<bool> {
    bridge(at)?.with_lock(lock, fairlock::Lock::is_held)
}

/// How it was lost, if it was.
#[napi(catch_unwind)]
pub(crate) fn lock_lost(at: u32, lock: u32) -> Result<Option<Failure>> {
    bridge(at)?.with_lock(lock, |lock| {
        lock.lost_reason().map(|reason| Error::lost(reason).into())
    })
}

/// Tells of its loss under the number `watch`, once.
#[napi(catch_unwind)]
pub(crate) fn watch_lock(at: u32, watch: u32, lock: u32) -> Result<()> {
    let bridge = bridge(at)?;
    let back = bridge.back();
    bridge.with_lock(lock, |lock| {
        lock.on_lost(move |reason| back.lost(watch, Error::lost(reason).into()));
    })
}

/// Ends with nothing when the lease has been renewed.
#[napi(catch_unwind)]
pub(crate) fn keep_lock(env: &Env, at: u32, lock: u32, lease_ms: Option<f64>) -> Result<Begun> {
    let bridge = bridge(at)?;
    let call = bridge.with_lock(lock, |lock| match lease_ms {
        None => Ok(lock.keep()),
        Some(time) => milliseconds("leaseMs", time).map(|lease| lock.keep_for(lease)),
    })?;
    bridge.call(env, call)
}
