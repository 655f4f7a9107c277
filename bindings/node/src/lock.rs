//! A held lock. Collecting it releases it in the background, because dropping a lock of the core does.

use crate::bridge::Bridge;
use crate::convert::milliseconds;
use crate::outcome::{Failure, Outcome};
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

/// Tells of its loss under `id`, once.
#[napi(catch_unwind)]
pub(crate) fn watch_lock(bridge: &External<Bridge>, id: f64, lock: &External<Lock>) {
    let back = bridge.back();
    lock.on_lost(move |reason| {
        back.send(id as u64, Ok(Outcome::Lost(Error::lost(reason).into())));
    });
}

/// Ends with nothing when the lease has been renewed.
#[napi(catch_unwind)]
pub(crate) fn keep_lock(
    env: &Env,
    bridge: &External<Bridge>,
    id: f64,
    lock: &External<Lock>,
    lease_ms: Option<f64>,
) -> Result<Option<Failure>> {
    let call = match lease_ms
        .map(|time| milliseconds("leaseMs", time))
        .transpose()
    {
        Ok(None) => lock.keep(),
        Ok(Some(lease)) => lock.keep_for(lease),
        Err(error) => return Ok(Some(error.into())),
    };
    bridge.begin(env, id, |()| Outcome::Done, |done| Some(call.submit(done)))?;
    Ok(None)
}

/// Ends with false if the lock had been lost before.
#[napi(catch_unwind)]
pub(crate) fn release_lock(
    env: &Env,
    bridge: &External<Bridge>,
    id: f64,
    lock: &External<Lock>,
) -> Result<()> {
    bridge.begin(env, id, Outcome::Flag, |done| {
        Some(lock.release().submit(done))
    })
}
