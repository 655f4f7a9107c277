//! Asking for locks without waiting: callbacks, and changing one's mind.

use crate::argument::{borrow, bytes, take};
use crate::callback::{Answer, Owed, fairlock_acquired_callback};
use crate::client::fairlock_client;
use crate::lock::{Wish, fairlock_lock};
use crate::options::{self, fairlock_options};
use crate::report::{self, Failure, Outcome};
use crate::status::fairlock_status;
use fairlock::Pending;
use std::ffi::c_void;
use std::ptr;

/// A call that has been started and can be cancelled.
pub struct fairlock_pending(Pending);

/// Asks for a lock without waiting: `callback` is told how it ended.
///
/// With FAIRLOCK_OK `callback` comes exactly once, also when the call is cancelled or the client is
/// closed; it may come before this returns, but never inside another one: what has ended at once is told
/// when the callback that asked for it has returned. With every other status it never comes:
/// FAIRLOCK_INVALID_ARGUMENT for NULL or wrong `options`. Everything else that fairlock_acquire() can
/// return comes to the callback. `key`, `options` and what they point to may go when this returns.
///
/// `pending`, if it is not NULL, gets a handle for fairlock_cancel(), which the caller frees with
/// fairlock_pending_free().
///
/// A callback comes on the client's own thread, or on any thread that is inside a call of this library,
/// whatever that call is about and whether or not it waits; only those that look at a handle, such as
/// fairlock_lock_held(), never call back. Hold no mutex during such a call that a callback takes. It
/// holds up every other call of the process, so it should be short. Inside it, calls that wait return
/// FAIRLOCK_WOULD_DEADLOCK, but fairlock_release(), fairlock_client_close() and everything that does
/// not wait are allowed. It must not throw or longjmp. After fork() it comes in the parent only. One that
/// forks has to end the child, by exec or _exit(): where it returns, the library's own thread ends, and
/// with its last thread the child; a call on any other thread goes on as after any fork(). On the library's
/// own thread signals are blocked, and stay so in a program that is started there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_acquire_async(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    options: *const fairlock_options,
    callback: fairlock_acquired_callback,
    data: *mut c_void,
    pending: *mut *mut fairlock_pending,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the variable, the handle, the bytes and the options are the caller's, alive during this call.
        let (place, client, key, options) = unsafe {
            (
                Place::new(pending),
                borrow(client, "client")?,
                bytes(key, key_length, "key")?,
                options::acquire(options)?,
            )
        };
        let (wish, owed) = (Wish::new(client, &options), owed(client, callback, data)?);
        place.put(wish.acquire(client, key, &options).submit(move |granted| {
            owed.pay(match granted {
                Ok(lock) => Ok(Some(wish.handle(lock))),
                Err(error) => Err(error.into()),
            });
        }));
        Ok(())
    })
}

/// As fairlock_acquire_async() for a lock that is free at this moment: if somebody else holds it,
/// `callback` gets FAIRLOCK_OK and NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_try_acquire_async(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    options: *const fairlock_options,
    callback: fairlock_acquired_callback,
    data: *mut c_void,
    pending: *mut *mut fairlock_pending,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the variable, the handle, the bytes and the options are the caller's, alive during this call.
        let (place, client, key, options) = unsafe {
            (
                Place::new(pending),
                borrow(client, "client")?,
                bytes(key, key_length, "key")?,
                options::acquire(options)?,
            )
        };
        let (wish, owed) = (Wish::new(client, &options), owed(client, callback, data)?);
        place.put(
            wish.try_acquire(client, key, &options)
                .submit(move |granted| {
                    owed.pay(match granted {
                        Ok(lock) => Ok(lock.map(|lock| wish.handle(lock))),
                        Err(error) => Err(error.into()),
                    });
                }),
        );
        Ok(())
    })
}

/// Stops a call that has been started, if it has not ended: its callback gets FAIRLOCK_CANCELLED, and
/// nothing is left behind on the server, also where the lock was on its way. If it has ended, nothing
/// happens. Does not free the handle and does not wait. May be called several times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cancel(pending: *const fairlock_pending) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle is the caller's, alive during this call.
        unsafe { borrow(pending, "pending")? }.0.cancel();
        Ok(())
    })
}

/// Frees the handle of a call, without cancelling it. Does nothing with NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_pending_free(pending: *mut fairlock_pending) {
    report::value((), || {
        // SAFETY: the caller gives the handle back.
        drop(unsafe { take(pending) });
        Ok(())
    });
}

/// Where the handle of a call goes, if anywhere.
struct Place(*mut *mut fairlock_pending);

impl Place {
    /// # Safety
    /// `pending` is NULL or may be written for as long as the place lives, by nobody else.
    unsafe fn new(pending: *mut *mut fairlock_pending) -> Place {
        if !pending.is_null() {
            // SAFETY: as the caller promises.
            unsafe { pending.write(ptr::null_mut()) };
        }
        Place(pending)
    }

    fn put(self, pending: Pending) {
        if !self.0.is_null() {
            // SAFETY: as who made this place has promised.
            unsafe {
                self.0
                    .write(Box::into_raw(Box::new(fairlock_pending(pending))))
            };
        }
    }
}

fn owed(
    client: &fairlock_client,
    callback: fairlock_acquired_callback,
    data: *mut c_void,
) -> Outcome<Owed> {
    let callback: unsafe extern "C" fn(*mut c_void, fairlock_status, *mut fairlock_lock) =
        callback.ok_or_else(|| Failure::argument("`callback` is NULL"))?;
    Ok(Owed::new(Answer::Acquired(callback), data, &client.calls))
}
