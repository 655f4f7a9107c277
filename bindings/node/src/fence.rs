//! The fence of the protected resource.

use crate::convert::{Key, key_bytes, token};
use crate::outcome::Failure;
use fairlock::Fence;
use napi::bindgen_prelude::{BigInt, External};
use napi_derive::napi;

/// A fence that has seen nothing.
#[napi(catch_unwind)]
pub(crate) fn new_fence() -> External<Fence> {
    External::new(Fence::new())
}

/// Lets the token pass, or says why not.
#[napi(catch_unwind)]
pub(crate) fn fence_check(fence: &External<Fence>, key: Key<'_>, mark: BigInt) -> Option<Failure> {
    token(&mark)
        .and_then(|token| fence.check(key_bytes(&key), token))
        .err()
        .map(Failure::from)
}

/// The highest token seen.
#[napi(catch_unwind)]
pub(crate) fn fence_highest(fence: &External<Fence>, key: Key<'_>) -> Option<BigInt> {
    fence
        .highest(key_bytes(&key))
        .map(|token| BigInt::from(token.get()))
}

/// Forgets the key.
#[napi(catch_unwind)]
pub(crate) fn fence_forget(fence: &External<Fence>, key: Key<'_>) {
    fence.forget(key_bytes(&key));
}
