//! The fence of the protected resource.

use crate::argument::{borrow, bytes, take, token};
use crate::report;
use crate::status::fairlock_status;
use fairlock::Fence;
use std::ffi::c_void;
use std::ptr;

/// Remembers the highest token seen of each key and refuses smaller ones; for the protected
/// resource. It lives in memory: where the resource outlives the process, keep the mark in the
/// resource itself, as examples/c/protected_resource.c does.
pub struct fairlock_fence(Fence);

/// Makes a fence that has seen nothing. The caller frees it with fairlock_fence_free().
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_fence_new() -> *mut fairlock_fence {
    report::value(ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(fairlock_fence(Fence::new()))))
    })
}

/// Lets a token pass that is at least the highest one seen of the key, and remembers it.
///
/// FAIRLOCK_STALE_TOKEN: a higher one has been seen; who comes with this one no longer holds the
/// lock and must not write. FAIRLOCK_INVALID_ARGUMENT: NULL, or 0 as a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_fence_check(
    fence: *const fairlock_fence,
    key: *const c_void,
    key_length: usize,
    token: u64,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle and the bytes are the caller's, alive during this call.
        let (fence, key) = unsafe { (borrow(fence, "fence")?, bytes(key, key_length, "key")?) };
        Ok(fence.0.check(key, self::token(token)?)?)
    })
}

/// The highest token seen of the key; 0 if none has been, or for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_fence_highest(
    fence: *const fairlock_fence,
    key: *const c_void,
    key_length: usize,
) -> u64 {
    report::value(0, || {
        // SAFETY: the handle and the bytes are the caller's, alive during this call.
        let (fence, key) = unsafe { (borrow(fence, "fence")?, bytes(key, key_length, "key")?) };
        Ok(fence.0.highest(key).map_or(0, |token| token.get()))
    })
}

/// Forgets the key, for a resource that is gone. A token of it that comes later passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_fence_forget(
    fence: *const fairlock_fence,
    key: *const c_void,
    key_length: usize,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle and the bytes are the caller's, alive during this call.
        let (fence, key) = unsafe { (borrow(fence, "fence")?, bytes(key, key_length, "key")?) };
        fence.0.forget(key);
        Ok(())
    })
}

/// Frees a fence. Does nothing with NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_fence_free(fence: *mut fairlock_fence) {
    report::value((), || {
        // SAFETY: the caller gives the handle back.
        drop(unsafe { take(fence) });
        Ok(())
    });
}
