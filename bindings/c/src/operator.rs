//! For operators and tests: what the server knows of its locks, and acting on locks of others.

use crate::argument::{borrow, bytes, output, take, token};
use crate::callback;
use crate::client::fairlock_client;
use crate::report::{self, Failure, Outcome};
use crate::status::fairlock_status::{self, *};
use fairlock::{HeldLock, KeyState, LockPage, Status, Waiter, Waiters};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::time::Duration;

/// Who holds a key. Strings belong to the view that it was taken from.
#[repr(C)]
pub struct fairlock_held_lock {
    /// What is locked; a NUL stands behind its last byte.
    pub key: *const c_char,
    /// Its length.
    pub key_length: usize,
    /// The fencing token.
    pub token: u64,
    /// What is left of the lease.
    pub remaining_ms: u64,
    /// How many wait for the key.
    pub waiters: u64,
    /// The name that the holder gave itself; NULL if it gave none.
    pub name: *const c_char,
    /// The network address of the holder, as the server saw it.
    pub address: *const c_char,
}

/// One who waits for a key. Strings belong to the view that it was taken from.
#[repr(C)]
pub struct fairlock_waiter {
    /// The place in the queue, from 1.
    pub position: u64,
    /// For how long already.
    pub waited_ms: u64,
    /// The name that the client gave itself; NULL if it gave none.
    pub name: *const c_char,
    /// The network address of the client, as the server saw it.
    pub address: *const c_char,
}

/// What a server says of itself. Strings belong to the view that it was taken from.
#[repr(C)]
pub struct fairlock_node_status {
    /// "starting", "standby", "active" or "leaving".
    pub role: *const c_char,
    /// Its own address.
    pub node: *const c_char,
    /// The address of the active node; NULL if it knows of none.
    pub active: *const c_char,
    /// The addresses of the standbys that have a copy of its state, with commas between them.
    pub standbys: *const c_char,
    /// The addresses of all nodes of its cluster in the order of their priority, with commas between them.
    pub peers: *const c_char,
    /// The term of its tokens.
    pub term: u32,
    /// How many keys are held.
    pub held: u64,
    /// How many requests wait.
    pub waiting: u64,
    /// How many connections there are.
    pub connections: u64,
}

/// What a server has told: held locks, waiters, its status. Nothing in it changes any more, and any
/// thread may read it.
#[derive(Default)]
pub struct fairlock_view {
    locks: Vec<fairlock_held_lock>,
    waiters: Vec<fairlock_waiter>,
    waiting: u64,
    node: Option<fairlock_node_status>,
    next: Option<Vec<u8>>,
    /// What the pointers above point into.
    texts: Vec<Box<[u8]>>,
}

// SAFETY: the pointers lead only into `texts`, whose boxes are never changed or given away while the
// view lives.
unsafe impl Send for fairlock_view {}
// SAFETY: as above; a shared view is only read.
unsafe impl Sync for fairlock_view {}

/// Asks who holds a key: the view has one held lock, or none if the key is free, and the number of
/// waiters. The caller frees the view with fairlock_view_free().
///
/// FAIRLOCK_CONNECTION_FAILED, FAIRLOCK_REFUSED, FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_CLOSED.
/// FAIRLOCK_WOULD_DEADLOCK: in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_inspect(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    view: *mut *mut fairlock_view,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle, the bytes and the variable are the caller's, alive during this call.
        let (view, client, key) = unsafe {
            (
                output(view, ptr::null_mut(), "view")?,
                borrow(client, "client")?,
                bytes(key, key_length, "key")?,
            )
        };
        callback::may_block()?;
        let mut seen = fairlock_view::default();
        match client.client.inspect(key).call()? {
            KeyState::Free { waiters } => seen.waiting = waiters,
            KeyState::Held(lock) => {
                seen.waiting = lock.waiters;
                seen.add_lock(lock);
            }
        }
        *view = Box::into_raw(Box::new(seen));
        Ok(())
    })
}

/// Asks who waits for a key: the view has the first `limit` of them (1 to 100,000) in their order,
/// and how many there are in all. Everything else is as with fairlock_inspect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_waiters(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    limit: u32,
    view: *mut *mut fairlock_view,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle, the bytes and the variable are the caller's, alive during this call.
        let (view, client, key) = unsafe {
            (
                output(view, ptr::null_mut(), "view")?,
                borrow(client, "client")?,
                bytes(key, key_length, "key")?,
            )
        };
        callback::may_block()?;
        let Waiters { count, first } = client.client.waiters(key, limit).call()?;
        let mut seen = fairlock_view {
            waiting: count,
            ..fairlock_view::default()
        };
        for waiter in first {
            seen.add_waiter(waiter);
        }
        *view = Box::into_raw(Box::new(seen));
        Ok(())
    })
}

/// Asks for the held keys that begin with `prefix` (length 0 for all; it may then be NULL), at most
/// `limit` (1 to 100,000), in an order of the server's own. For the next page give what
/// fairlock_view_next() says as `after`; NULL for the first one. Everything else is as with
/// fairlock_inspect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_locks(
    client: *const fairlock_client,
    prefix: *const c_void,
    prefix_length: usize,
    after: *const c_void,
    after_length: usize,
    limit: u32,
    view: *mut *mut fairlock_view,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle, the bytes and the variable are the caller's, alive during this call.
        let (view, client, prefix, after) = unsafe {
            (
                output(view, ptr::null_mut(), "view")?,
                borrow(client, "client")?,
                match prefix_length {
                    0 => &[],
                    _ => bytes(prefix, prefix_length, "prefix")?,
                },
                match after.is_null() {
                    true => None,
                    false => Some(bytes(after, after_length, "after")?),
                },
            )
        };
        callback::may_block()?;
        let LockPage { locks, next } = client.client.locks(prefix, after, limit).call()?;
        let mut seen = fairlock_view::default();
        for lock in locks {
            seen.add_lock(lock);
        }
        seen.next = next;
        *view = Box::into_raw(Box::new(seen));
        Ok(())
    })
}

/// Asks the node that serves this client for a line about itself: fairlock_view_node(). Everything
/// else is as with fairlock_inspect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_server_status(
    client: *const fairlock_client,
    view: *mut *mut fairlock_view,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle and the variable are the caller's, alive during this call.
        let (view, client) = unsafe {
            (
                output(view, ptr::null_mut(), "view")?,
                borrow(client, "client")?,
            )
        };
        callback::may_block()?;
        let mut seen = fairlock_view::default();
        seen.set_node(client.client.status().call()?);
        *view = Box::into_raw(Box::new(seen));
        Ok(())
    })
}

/// The held lock at `index`, from 0; NULL behind the last one, and for NULL. Belongs to the view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_view_lock(
    view: *const fairlock_view,
    index: usize,
) -> *const fairlock_held_lock {
    report::value(ptr::null(), || {
        // SAFETY: the handle is the caller's, alive during this call.
        let view = unsafe { borrow(view, "view")? };
        Ok(view.locks.get(index).map_or(ptr::null(), ptr::from_ref))
    })
}

/// The waiter at `index`, from 0; NULL behind the last one, and for NULL. Belongs to the view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_view_waiter(
    view: *const fairlock_view,
    index: usize,
) -> *const fairlock_waiter {
    report::value(ptr::null(), || {
        // SAFETY: the handle is the caller's, alive during this call.
        let view = unsafe { borrow(view, "view")? };
        Ok(view.waiters.get(index).map_or(ptr::null(), ptr::from_ref))
    })
}

/// How many wait for the key that was asked about. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_view_waiting(view: *const fairlock_view) -> u64 {
    report::value(0, || {
        // SAFETY: the handle is the caller's, alive during this call.
        Ok(unsafe { borrow(view, "view")? }.waiting)
    })
}

/// The status of the node; NULL if the view is of something else, and for NULL. Belongs to the view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_view_node(
    view: *const fairlock_view,
) -> *const fairlock_node_status {
    report::value(ptr::null(), || {
        // SAFETY: the handle is the caller's, alive during this call.
        let view = unsafe { borrow(view, "view")? };
        Ok(view.node.as_ref().map_or(ptr::null(), ptr::from_ref))
    })
}

/// What to give to fairlock_locks() as `after` for the next page, with its length; NULL if this was
/// the last page, and for NULL. Belongs to the view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_view_next(
    view: *const fairlock_view,
    length: *mut usize,
) -> *const c_void {
    report::value(ptr::null(), || {
        // SAFETY: the variable and the handle are the caller's, alive during this call.
        let (length, view) = unsafe { (output(length, 0, "length")?, borrow(view, "view")?) };
        let Some(next) = &view.next else {
            return Ok(ptr::null());
        };
        *length = next.len();
        Ok(next.as_ptr().cast())
    })
}

/// Frees a view and everything in it. Does nothing with NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_view_free(view: *mut fairlock_view) {
    report::value((), || {
        // SAFETY: the caller gives the handle back.
        drop(unsafe { take(view) });
        Ok(())
    });
}

/// Releases whatever holds the key with this token, also a lock of another client, and waits for the
/// answer. The holder is told "taken".
///
/// FAIRLOCK_LOCK_LOST: the token does not hold the key. FAIRLOCK_RELEASE_UNCONFIRMED: it was sent, and
/// no server answered for five seconds. FAIRLOCK_CONNECTION_FAILED: there was none to send it to.
/// FAIRLOCK_REFUSED, FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_CLOSED. FAIRLOCK_WOULD_DEADLOCK: in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_release_token(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    token: u64,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle and the bytes are the caller's, alive during this call.
        let (client, key) = unsafe { (borrow(client, "client")?, bytes(key, key_length, "key")?) };
        let token = self::token(token)?;
        callback::may_block()?;
        held(client.client.release(key, token).call()?)
    })
}

/// Lets the lease of whatever holds the key with this token end no earlier than `lease_ms` from now,
/// and waits for the answer. As fairlock_release_token(), with FAIRLOCK_CONNECTION_FAILED if no
/// server answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_keep_token(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    token: u64,
    lease_ms: u64,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle and the bytes are the caller's, alive during this call.
        let (client, key) = unsafe { (borrow(client, "client")?, bytes(key, key_length, "key")?) };
        let token = self::token(token)?;
        callback::may_block()?;
        held(
            client
                .client
                .keep(key, token, Duration::from_millis(lease_ms))
                .call()?,
        )
    })
}

fn held(held: bool) -> Outcome<()> {
    if held {
        return Ok(());
    }
    Err(Failure::new(
        FAIRLOCK_LOCK_LOST,
        "this token does not hold the key",
    ))
}

impl fairlock_view {
    /// Keeps bytes, with a NUL behind them, for as long as the view lives.
    fn text(&mut self, bytes: &[u8]) -> *const c_char {
        let text: Box<[u8]> = [bytes, b"\0"].concat().into();
        let pointer = text.as_ptr().cast();
        self.texts.push(text);
        pointer
    }

    fn optional(&mut self, bytes: Option<&[u8]>) -> *const c_char {
        bytes.map_or(ptr::null(), |bytes| self.text(bytes))
    }

    fn add_lock(&mut self, lock: HeldLock) {
        let lock = fairlock_held_lock {
            key: self.text(&lock.key),
            key_length: lock.key.len(),
            token: lock.token.get(),
            remaining_ms: whole_ms(lock.remaining),
            waiters: lock.waiters,
            name: self.optional(lock.name.as_deref()),
            address: self.text(lock.address.as_bytes()),
        };
        self.locks.push(lock);
    }

    fn add_waiter(&mut self, waiter: Waiter) {
        let waiter = fairlock_waiter {
            position: waiter.position,
            waited_ms: whole_ms(waiter.waited),
            name: self.optional(waiter.name.as_deref()),
            address: self.text(waiter.address.as_bytes()),
        };
        self.waiters.push(waiter);
    }

    fn set_node(&mut self, status: Status) {
        self.node = Some(fairlock_node_status {
            role: self.text(status.role.as_str().as_bytes()),
            node: self.text(status.node.as_bytes()),
            active: self.optional(status.active.as_deref().map(str::as_bytes)),
            standbys: self.text(status.standbys.join(",").as_bytes()),
            peers: self.text(status.peers.join(",").as_bytes()),
            term: status.term,
            held: status.held,
            waiting: status.waiting,
            connections: status.connections,
        });
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
