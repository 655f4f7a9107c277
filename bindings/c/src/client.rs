//! Clients, and asking for locks with blocking calls.

use crate::argument::{borrow, bytes, output, take};
use crate::callback::{self, Calls};
use crate::lock::{Wish, fairlock_lock};
use crate::options::{self, fairlock_client_options, fairlock_options};
use crate::report;
use crate::status::fairlock_status;
use fairlock::Client;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A client of a server or of a cluster. One is enough for a process: any thread may use it, also
/// several at once. However many there are, they share one background thread.
///
/// After fork() the child may use it too: it then has an identity and connections of its own. The
/// child never releases its parent's locks.
pub struct fairlock_client {
    pub(crate) client: Client,
    pub(crate) calls: Arc<Calls>,
}

/// Makes a client. Does not wait for the network: connections come up in the background, and the
/// first call waits for them, at most `connect_timeout_ms`.
///
/// `servers` is one address or several, with commas between them, in any order; a port that is left
/// out is 7420. NULL stands for the environment's FAIRLOCK_SERVERS, or else 127.0.0.1:7420. `options`
/// may be NULL. Strings are copied. The caller closes the client with fairlock_client_close().
///
/// FAIRLOCK_INVALID_ARGUMENT: an address that is none, an option out of its limits, a secret file
/// that cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_client_open(
    servers: *const c_char,
    options: *const fairlock_client_options,
    client: *mut *mut fairlock_client,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the strings, the options and the variable are the caller's, alive during this call.
        let (client, builder) = unsafe {
            (
                output(client, ptr::null_mut(), "client")?,
                options::client(servers, options)?,
            )
        };
        *client = Box::into_raw(Box::new(fairlock_client::new(builder.build()?)));
        Ok(())
    })
}

/// Waits until a connection is up, at most `connect_timeout_ms`; for programs that want to know at
/// once whether there is a server.
///
/// FAIRLOCK_CONNECTION_FAILED: none; the message names each address and why it failed.
/// FAIRLOCK_REFUSED: the servers do not want this client. FAIRLOCK_WOULD_DEADLOCK: in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_client_connected(
    client: *const fairlock_client,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle is the caller's, alive during this call.
        let client = unsafe { borrow(client, "client")? };
        callback::may_block()?;
        Ok(client.client.connected().call()?)
    })
}

/// Closes a client and frees the handle. Does nothing with NULL.
///
/// What is under way ends with FAIRLOCK_CLOSED at once, blocking calls of other threads too. Locks
/// are told that they are lost, and those still held are released, for at most a second; their
/// handles stay the caller's, to be freed with fairlock_release(). When this returns, every callback
/// of the client's calls has come and returned, and with the last client the background thread has
/// ended. It therefore waits for a callback that is running: hold no mutex that one of them takes.
///
/// Inside a callback it does not wait: the rest goes on in the background, and callbacks may come
/// after it has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_client_close(client: *mut fairlock_client) {
    report::value((), || {
        // SAFETY: the caller gives the handle back.
        let Some(client) = (unsafe { take(client) }) else {
            return Ok(());
        };
        if callback::inside() {
            client.client.close().submit(drop);
            return Ok(());
        }
        let closed = client.client.close().call();
        client.calls.wait();
        drop(client);
        wait_for_end();
        Ok(closed?)
    });
}

/// How many clients are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// How long the last close waits for the background thread, which has nothing to do but end.
const END: Duration = Duration::from_secs(1);

impl fairlock_client {
    fn new(client: Client) -> fairlock_client {
        OPEN.fetch_add(1, SeqCst);
        fairlock_client {
            client,
            calls: Arc::default(),
        }
    }
}

impl Drop for fairlock_client {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, SeqCst);
    }
}

/// After the last client nothing of the library stays in use, its thread included.
fn wait_for_end() {
    let begun = Instant::now();
    let alone = || OPEN.load(SeqCst) == 0 && begun.elapsed() < END;
    if alone() {
        fairlock::wait_for_background_thread(alone);
    }
}

/// Waits in line for a lock and takes it. The caller ends it with fairlock_release().
///
/// `key` is any `key_length` bytes, 1 to 512. `options` may be NULL. Other threads can use the client
/// meanwhile. To be able to stop waiting, use fairlock_acquire_async() and fairlock_cancel().
///
/// FAIRLOCK_WAIT_TIMEOUT: not had within `wait_ms`; nothing is left behind.
/// FAIRLOCK_CONNECTION_FAILED: no server; the message names each address and why it failed.
/// FAIRLOCK_REFUSED, FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_CLOSED.
/// FAIRLOCK_WOULD_DEADLOCK: in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_acquire(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    options: *const fairlock_options,
    lock: *mut *mut fairlock_lock,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle, the bytes, the options and the variable are the caller's, alive during
        // this call.
        let (lock, client, key, options) = unsafe {
            (
                output(lock, ptr::null_mut(), "lock")?,
                borrow(client, "client")?,
                bytes(key, key_length, "key")?,
                options::acquire(options)?,
            )
        };
        callback::may_block()?;
        let wish = Wish::new(client, &options);
        let granted = wish.acquire(client, key, &options).call()?;
        *lock = Box::into_raw(wish.handle(granted));
        Ok(())
    })
}

/// Takes a lock if it is free at this moment. If somebody else holds it: FAIRLOCK_OK and a NULL
/// `lock`. Everything else is as with fairlock_acquire(); `wait_ms` does not count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_try_acquire(
    client: *const fairlock_client,
    key: *const c_void,
    key_length: usize,
    options: *const fairlock_options,
    lock: *mut *mut fairlock_lock,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the handle, the bytes, the options and the variable are the caller's, alive during
        // this call.
        let (lock, client, key, options) = unsafe {
            (
                output(lock, ptr::null_mut(), "lock")?,
                borrow(client, "client")?,
                bytes(key, key_length, "key")?,
                options::acquire(options)?,
            )
        };
        callback::may_block()?;
        let wish = Wish::new(client, &options);
        if let Some(granted) = wish.try_acquire(client, key, &options).call()? {
            *lock = Box::into_raw(wish.handle(granted));
        }
        Ok(())
    })
}
