//! Locks: what is known of one, keeping it, being told of its loss, letting it go.

use crate::argument::{borrow, take};
use crate::callback::{
    self, Answer, Calls, Listener, Owed, fairlock_done_callback, fairlock_lost_callback,
};
use crate::client::fairlock_client;
use crate::options::fairlock_options;
use crate::report::{self, Failure, Outcome};
use crate::status::fairlock_status;
use fairlock::{Acquire, Call, Error, ErrorKind, Lock, LostReason, TryAcquire, fork_generation};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A lock that this process holds, or held. It belongs to no thread: any thread may use it and
/// release it.
///
/// In a process forked from the holder fairlock_lock_held() says 0, calls that would change the lock
/// return FAIRLOCK_FORKED, and releasing it only frees the handle.
pub struct fairlock_lock {
    lock: Lock,
    calls: Arc<Calls>,
    listener: OnceLock<Arc<Listener>>,
    /// The process that it was granted to.
    generation: u32,
    /// With a NUL behind it, for those who print keys.
    key: OnceLock<Box<[u8]>>,
}

/// What of an acquire goes into its lock.
pub(crate) struct Wish {
    calls: Arc<Calls>,
    listener: Option<Arc<Listener>>,
    generation: u32,
}

macro_rules! with_options {
    ($builder:expr, $options:expr, $listener:expr) => {{
        let mut builder = $builder.lease(Duration::from_millis($options.lease_ms));
        if $options.keep_alive != 0 {
            builder = builder.keep_alive();
        }
        if $options.max_hold_ms != 0 {
            builder = builder.max_hold(Duration::from_millis($options.max_hold_ms));
        }
        if let Some(listener) = $listener.clone() {
            builder = builder.on_lost(move |reason| listener.lost(reason.into()));
        }
        builder
    }};
}

impl Wish {
    pub(crate) fn new(client: &fairlock_client, options: &fairlock_options) -> Wish {
        let listener = options.on_lost.is_some().then(|| {
            let listener = Listener::new();
            listener.replace(options.on_lost, options.on_lost_data);
            listener
        });
        Wish {
            calls: client.calls.clone(),
            listener,
            generation: fork_generation(),
        }
    }

    pub(crate) fn acquire(
        &self,
        client: &fairlock_client,
        key: &[u8],
        options: &fairlock_options,
    ) -> Acquire {
        with_options!(client.client.acquire(key), options, self.listener)
            .wait(Duration::from_millis(options.wait_ms))
    }

    pub(crate) fn try_acquire(
        &self,
        client: &fairlock_client,
        key: &[u8],
        options: &fairlock_options,
    ) -> TryAcquire {
        with_options!(client.client.try_acquire(key), options, self.listener)
    }

    /// The handle of what was granted.
    pub(crate) fn handle(self, lock: Lock) -> Box<fairlock_lock> {
        Box::new(fairlock_lock {
            lock,
            calls: self.calls,
            listener: self.listener.map(OnceLock::from).unwrap_or_default(),
            generation: self.generation,
            key: OnceLock::new(),
        })
    }
}

/// The key. `length`, which may be NULL, gets its length; a NUL stands behind its last byte. It
/// belongs to the handle and lives as long. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_key(
    lock: *const fairlock_lock,
    length: *mut usize,
) -> *const c_char {
    report::value(ptr::null(), || {
        // SAFETY: the variable is the caller's; NULL is left alone.
        if let Some(length) = unsafe { length.as_mut() } {
            *length = 0;
        }
        // SAFETY: the handle is the caller's, alive during this call.
        let lock = unsafe { borrow(lock, "lock")? };
        let key = lock
            .key
            .get_or_init(|| [lock.lock.key(), b"\0"].concat().into());
        // SAFETY: as above.
        if let Some(length) = unsafe { length.as_mut() } {
            *length = key.len() - 1;
        }
        Ok(key.as_ptr().cast())
    })
}

/// The fencing token: of two locks of a key the later one has the higher token. Give it to what the
/// lock protects, so that it can refuse an older one; see fairlock_fence_check(). 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_token(lock: *const fairlock_lock) -> u64 {
    report::value(0, || {
        // SAFETY: the handle is the caller's, alive during this call.
        Ok(unsafe { borrow(lock, "lock")? }.lock.token().get())
    })
}

/// The lease by which the lock ends: that of the acquire, or of the latest keep that has put its end
/// off. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_lease_ms(lock: *const fairlock_lock) -> u64 {
    report::value(0, || {
        // SAFETY: the handle is the caller's, alive during this call.
        Ok(whole_ms(unsafe { borrow(lock, "lock")? }.lock.lease()))
    })
}

/// How long the lock surely stays held without being kept, by a clock that goes on while the machine
/// sleeps: never too long, 0 when it is lost. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_remaining_ms(lock: *const fairlock_lock) -> u64 {
    report::value(0, || {
        // SAFETY: the handle is the caller's, alive during this call.
        Ok(whole_ms(unsafe { borrow(lock, "lock")? }.lock.remaining()))
    })
}

/// 1 while the lock is held, 0 when it is lost, or for NULL. A short look that asks no server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_held(lock: *const fairlock_lock) -> c_int {
    report::value(0, || {
        // SAFETY: the handle is the caller's, alive during this call.
        Ok(unsafe { borrow(lock, "lock")? }.lock.is_held().into())
    })
}

/// Renews the lease: it ends `lease_ms` from now, or later if it would have anyway; 0 stands for
/// fairlock_lock_lease_ms(). Waits for the answer.
///
/// FAIRLOCK_LOCK_LOST: the lock was lost. FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_REFUSED,
/// FAIRLOCK_FORKED. FAIRLOCK_WOULD_DEADLOCK: in a callback; fairlock_lock_keep_async() works there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_keep(
    lock: *const fairlock_lock,
    lease_ms: u64,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle is the caller's, alive during this call.
        let lock = unsafe { borrow(lock, "lock")? };
        callback::may_block()?;
        Ok(lock.keep(lease_ms).call()?)
    })
}

/// As fairlock_lock_keep(), without waiting: `callback` is told how it ended, under the rules of
/// fairlock_acquire_async(). The handle may be released before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_keep_async(
    lock: *const fairlock_lock,
    lease_ms: u64,
    callback: fairlock_done_callback,
    data: *mut c_void,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle is the caller's, alive during this call.
        let lock = unsafe { borrow(lock, "lock")? };
        let callback = callback.ok_or_else(|| Failure::argument("`callback` is NULL"))?;
        let owed = Owed::new(Answer::Done(callback), data, &lock.calls);
        lock.keep(lease_ms)
            .submit(move |kept| owed.pay(kept.map(|()| None).map_err(Failure::from)));
        Ok(())
    })
}

/// Says whom to tell if the lock is lost before it is released, in place of whom it was before; NULL
/// for nobody. If it has been lost already, `callback` is called before this returns, on this thread.
///
/// A callback comes once, at the latest when an eighth of the lease is left, so before anybody else can
/// have the lock; with FAIRLOCK_LOST_CLOSED when the client is closed. For it the rules of
/// fairlock_acquire_async() hold: it comes on the client's own thread, or on any thread that is inside
/// a call of this library, so hold no mutex during such a call that it takes.
///
/// After this, or after fairlock_release(), has returned, the callback that was there before is not
/// running and never will be: its data can be freed. Both therefore wait for one that is running.
/// Called by the callback itself they do not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_on_lost(
    lock: *const fairlock_lock,
    callback: fairlock_lost_callback,
    data: *mut c_void,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle is the caller's, alive during this call.
        let lock = unsafe { borrow(lock, "lock")? };
        lock.listener().replace(callback, data);
        Ok(())
    })
}

/// Releases a lock, waits for the answer, and frees the handle, whatever it returns. Does nothing
/// with NULL and returns FAIRLOCK_OK.
///
/// FAIRLOCK_LOCK_LOST: the lock had been lost before, fairlock_last_reason() says how.
/// FAIRLOCK_RELEASE_UNCONFIRMED: no server answered for five seconds; its lease will free the lock.
/// FAIRLOCK_FORKED: the lock is the parent's and stays held.
///
/// Inside a callback it does not wait for the answer: the release goes on in the background, and
/// FAIRLOCK_OK says that the lock was held so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_release(lock: *mut fairlock_lock) -> fairlock_status {
    report::call(|| {
        // SAFETY: the caller gives the handle back.
        let Some(lock) = (unsafe { take(lock) }) else {
            return Ok(());
        };
        lock.deafen();
        // In a child the answer is known, and nothing waits for it.
        if callback::inside() && lock.generation == fork_generation() {
            let held = lock.lock.is_held();
            lock.lock.release().submit(drop);
            return if held { Ok(()) } else { Err(lock.lost()) };
        }
        let released = lock.lock.release().call();
        lock.released(released)
    })
}

/// As fairlock_release(), without waiting: `callback`, which may be NULL, is told how it ended, under
/// the rules of fairlock_acquire_async(). Frees the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_release_async(
    lock: *mut fairlock_lock,
    callback: fairlock_done_callback,
    data: *mut c_void,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the caller gives the handle back.
        let Some(lock) = (unsafe { take(lock) }) else {
            return Err(Failure::argument("`lock` is NULL"));
        };
        lock.deafen();
        let release = lock.lock.release();
        match callback {
            None => drop(release.submit(drop)),
            Some(callback) => {
                let owed = Owed::new(Answer::Done(callback), data, &lock.calls);
                release.submit(move |released| owed.pay(lock.released(released).map(|()| None)));
            }
        }
        Ok(())
    })
}

/// Gives a lock up without releasing it, frees the handle and returns the token, with which somebody
/// can release or keep the lock: fairlock_release_token(). It stays held until its lease ends and is
/// no longer renewed. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_leave_held(lock: *mut fairlock_lock) -> u64 {
    report::value(0, || {
        // SAFETY: the caller gives the handle back.
        let Some(lock) = (unsafe { take(lock) }) else {
            return Err(Failure::argument("`lock` is NULL"));
        };
        lock.deafen();
        Ok(lock.lock.leave_held().get())
    })
}

impl fairlock_lock {
    fn keep(&self, lease_ms: u64) -> Call<()> {
        match lease_ms {
            0 => self.lock.keep(),
            _ => self.lock.keep_for(Duration::from_millis(lease_ms)),
        }
    }

    fn listener(&self) -> &Listener {
        self.listener.get_or_init(|| {
            let listener = Listener::new();
            let told = listener.clone();
            self.lock.on_lost(move |reason| told.lost(reason.into()));
            listener
        })
    }

    /// From now on nobody is told of a loss.
    fn deafen(&self) {
        if let Some(listener) = self.listener.get() {
            listener.replace(None, ptr::null_mut());
        }
    }

    /// What became of a release.
    fn released(&self, released: Result<bool, Error>) -> Outcome<()> {
        match released {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lost()),
            Err(error) => Err(error.into()),
        }
    }

    fn lost(&self) -> Failure {
        let reason = self.lock.lost_reason().unwrap_or(LostReason::Taken);
        Error::new(
            ErrorKind::LockLost { reason },
            format!("the lock had been lost before it was released: {reason}"),
        )
        .into()
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
