//! A held lock. Collecting it releases it in the background, because dropping a lock of the core does.

use crate::bridge::{Begun, bridge};
use crate::convert::milliseconds;
use crate::outcome::Failure;
use fairlock::{Error, Lock};
use napi::bindgen_prelude::{BigInt, External};
use napi::{Env, Result};
use napi_derive::napi;

/// The fencing token.
#[napi(catch_unwind)]
pub(crate) fn lock_token(lock: &External<Lock>) -> BigInt {
    BigInt::from(lock.token().get())
}

/// The lease.
#[napi(catch_unwind)]
pub(crate) fn lock_lease_ms(lock: &External<Lock>) -> f64 {
    lock.lease().as_secs_f64() * 1000.0
}

/// What is left of it.
#[napi(catch_unwind)]
pub(crate) fn lock_remaining_ms(lock: &External<Lock>) -> f64 {
    lock.remaining().as_secs_f64() * 1000.0
}

/// Whether it is held, as far as this process knows.
#[napi(catch_unwind)]
pub(crate) fn lock_held(lock: &External<Lock>) -> bool {
    lock.is_held()
}

/// How it was lost, if it was.
#[napi(catch_unwind)]
pub(crate) fn lock_lost(lock: &External<Lock>) -> Option<Failure> {
    lock.lost_reason().map(|reason| Error::lost(reason).into())
}

/// Tells of its loss under the number `watch`, once.
#[napi(catch_unwind)]
pub(crate) fn watch_lock(at: u32, watch: u32, lock: &External<Lock>) -> Result<()> {
    let back = bridge(at)?.back();
    lock.on_lost(move |reason| back.lost(watch, Error::lost(reason).into()));
    Ok(())
}

/// Ends with nothing when the lease has been renewed.
#[napi(catch_unwind)]
pub(crate) fn keep_lock(
    env: &Env,
    at: u32,
    lock: &External<Lock>,
    lease_ms: Option<f64>,
) -> Result<Begun> {
    let call = match lease_ms {
        None => Ok(lock.keep()),
        Some(time) => milliseconds("leaseMs", time).map(|lease| lock.keep_for(lease)),
    };
    bridge(at)?.call(env, call)
}

/// Ends with false if the lock had been lost before.
#[napi(catch_unwind)]
pub(crate) fn release_lock(env: &Env, at: u32, lock: &External<Lock>) -> Result<Begun> {
    bridge(at)?.call(env, Ok(lock.release()))
}
