//! A node inside the process.

use crate::argument::{borrow, output, take, text};
use crate::report::{self, Failure, Outcome};
use crate::status::fairlock_status::{self, *};
use fairlock::node::Settings;
use fairlock::{Server, ServerError};
use std::ffi::{CString, c_char};
use std::ptr;

/// One setting of a node. The names, and how the values are written, are those of the settings file;
/// durations are in seconds, as there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fairlock_setting {
    /// As in "data_dir" or "max_lease".
    pub name: *const c_char,
    /// As in "/var/lib/fairlock" or "60".
    pub value: *const c_char,
}

/// How many bytes an address of fairlock_server_free_address() takes at most.
pub const FAIRLOCK_FREE_ADDRESS_SIZE: usize = 32;

/// A node that runs inside the process, on a thread of its own.
pub struct fairlock_server {
    server: Server,
    address: CString,
}

/// Starts a node inside the process and waits until it serves, which takes milliseconds.
///
/// `listen` is the address, as in "127.0.0.1:7420"; NULL stands for the setting "node" or else for
/// "127.0.0.1:0", a free port of this machine. With "peers" and "node" it is one node of a cluster, and
/// the call waits until it takes connections. `settings` ends with {NULL, NULL}; NULL stands for none. Without "data_dir" the node
/// is ephemeral, as suits tests. Strings are copied. The caller ends the node with
/// fairlock_server_stop().
///
/// FAIRLOCK_INVALID_ARGUMENT: a setting cannot be used; the message names it.
/// FAIRLOCK_SERVER_FAILED: the address, the folder or the term file cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_server_start(
    listen: *const c_char,
    settings: *const fairlock_setting,
    server: *mut *mut fairlock_server,
) -> fairlock_status {
    report::call(|| {
        // SAFETY: the strings, the list and the variable are the caller's, alive during this call.
        let (server, listen, settings) = unsafe {
            (
                output(server, ptr::null_mut(), "server")?,
                text(listen, "listen")?,
                read_settings(settings)?,
            )
        };
        let mut settings = settings;
        settings.listen = match (listen, &settings.listen, &settings.node) {
            (Some(listen), ..) => Some(listen.to_owned()),
            (None, Some(listen), _) => Some(listen.clone()),
            (None, None, Some(_)) => None,
            (None, None, None) => Some("127.0.0.1:0".to_owned()),
        };
        settings.ephemeral = settings.data_dir.is_none();
        let started = Server::builder()
            .settings(settings)
            .start_blocking()
            .map_err(failure)?;
        let address = CString::new(started.address().to_string())
            .expect("an address is digits, dots, colons and brackets");
        *server = Box::into_raw(Box::new(fairlock_server {
            server: started,
            address,
        }));
        Ok(())
    })
}

/// Where the node listens, as in "127.0.0.1:40123". The string belongs to the handle and lives as
/// long. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_server_address(server: *const fairlock_server) -> *const c_char {
    report::value(ptr::null(), || {
        // SAFETY: the handle is the caller's, alive during this call.
        let server = unsafe { borrow(server, "server")? };
        Ok(server.address.as_ptr())
    })
}

/// Stops a node in order, waits until it has ended, and frees the handle, whatever it returns. Does
/// nothing with NULL and returns FAIRLOCK_OK.
///
/// FAIRLOCK_SERVER_FAILED: the node had ended before; the message says why.
/// FAIRLOCK_FORKED: the node runs in the process that this one was forked from, and goes on there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_server_stop(server: *mut fairlock_server) -> fairlock_status {
    report::call(|| {
        // SAFETY: the caller gives the handle back.
        match unsafe { take(server) } {
            Some(server) => server.server.stop_blocking().map_err(failure),
            None => Ok(()),
        }
    })
}

/// Ends a node at once, as if its process had been killed, and frees the handle, whatever it returns:
/// nobody is told and nothing is handed over to another node of its cluster. For tests. Does nothing with
/// NULL and returns FAIRLOCK_OK.
///
/// FAIRLOCK_SERVER_FAILED: the node had ended before; the message says why.
/// FAIRLOCK_FORKED: the node runs in the process that this one was forked from, and goes on there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_server_kill(server: *mut fairlock_server) -> fairlock_status {
    report::call(|| {
        // SAFETY: the caller gives the handle back.
        match unsafe { take(server) } {
            Some(server) => server.server.kill().map_err(failure),
            None => Ok(()),
        }
    })
}

/// Writes an address of this machine, as in "127.0.0.1:40123", that nobody else gets until a node of
/// this process listens there, so that the nodes of a cluster can be told of each other before the
/// first one starts. Another one each time. `address` has room for FAIRLOCK_FREE_ADDRESS_SIZE bytes,
/// the zero at the end included.
///
/// FAIRLOCK_SERVER_FAILED: this machine has no address to give; the message says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_server_free_address(address: *mut c_char) -> fairlock_status {
    report::call(|| {
        // SAFETY: the caller has room for more than this one byte.
        unsafe { output(address, 0, "address")? };
        let free = Server::free_address()
            .map_err(|error| Failure::new(FAIRLOCK_SERVER_FAILED, error.to_string()))?;
        let text = CString::new(free.to_string()).expect("an address is digits, dots and a colon");
        let bytes = text.as_bytes_with_nul();
        assert!(
            bytes.len() <= FAIRLOCK_FREE_ADDRESS_SIZE,
            "four numbers and a port"
        );
        // SAFETY: the caller has room for FAIRLOCK_FREE_ADDRESS_SIZE bytes, and these are no more.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), address, bytes.len()) };
        Ok(())
    })
}

/// # Safety
/// `list` is NULL or readable up to the entry without a name, and so are its strings.
unsafe fn read_settings(list: *const fairlock_setting) -> Outcome<Settings> {
    let mut settings = Settings::default();
    let mut next = list;
    // SAFETY: the list goes on until the entry without a name.
    while let Some(setting) = unsafe { next.as_ref() } {
        // SAFETY: the strings are the caller's, as the list is.
        let (name, value) = unsafe { (text(setting.name, "name")?, text(setting.value, "value")?) };
        let Some(name) = name else { break };
        let value =
            value.ok_or_else(|| Failure::argument(format!("setting `{name}` has no value")))?;
        settings
            .set(name, value)
            .map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: this was not the last entry, so there is another one.
        next = unsafe { next.add(1) };
    }
    Ok(settings)
}

fn failure(error: ServerError) -> Failure {
    let status = match error {
        ServerError::Setting(_) => FAIRLOCK_INVALID_ARGUMENT,
        ServerError::Forked => FAIRLOCK_FORKED,
        _ => FAIRLOCK_SERVER_FAILED,
    };
    Failure::new(status, error.to_string())
}
