//! Lets Node's own event loop read the answers: where it is about to sleep anyway, it may as well wait for the
//! sockets, and no other thread has to wake it. One call at a time costs little more than its wake-ups.
//!
//! The core's own thread takes the sockets back when the loop has not come by for a few milliseconds, so a loop
//! that is blocked holds up nothing. Where the runtime has no libuv, that thread reads alone.
//!
//! Here `unsafe` is needed: libuv, and the parts of Node-API that go with it, are C.
#![allow(unsafe_code)]

use crate::bridge::{Back, bridge};
use fairlock::EventLoop;
use napi::{Env, sys};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};

/// `UV_POLL` and `UV_READABLE` of uv.h; they have been these since libuv 1.0.
const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;

type Handle = *mut c_void;

/// The functions of libuv that Node exports.
struct Libuv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    poll_init: unsafe extern "C" fn(*mut sys::uv_loop_s, Handle, c_int) -> c_int,
    poll_start:
        unsafe extern "C" fn(Handle, c_int, unsafe extern "C" fn(Handle, c_int, c_int)) -> c_int,
    unref: unsafe extern "C" fn(Handle),
    close: unsafe extern "C" fn(Handle, unsafe extern "C" fn(Handle)),
    set_data: unsafe extern "C" fn(Handle, *mut c_void),
    data: unsafe extern "C" fn(Handle) -> *mut c_void,
}

impl Libuv {
    /// Looked up while running, so that the addon loads where they are missing.
    fn of_this_process() -> Option<&'static Libuv> {
        static LIBUV: OnceLock<Option<Libuv>> = OnceLock::new();
        LIBUV
            .get_or_init(|| {
                // SAFETY: each name is that of the function whose type the field has, in every libuv 1.
                unsafe {
                    Some(Libuv {
                        handle_size: function(c"uv_handle_size")?,
                        poll_init: function(c"uv_poll_init")?,
                        poll_start: function(c"uv_poll_start")?,
                        unref: function(c"uv_unref")?,
                        close: function(c"uv_close")?,
                        set_data: function(c"uv_handle_set_data")?,
                        data: function(c"uv_handle_get_data")?,
                    })
                }
            })
            .as_ref()
    }
}

/// SAFETY: `F` has to be the type of a pointer to the function of this name.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends with NUL.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: not null, and of this type as the caller says.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// What the handle carries; freed when it is closed.
struct Watch {
    libuv: &'static Libuv,
    /// The memory of the handle, of the size that libuv asks for.
    handle: Box<[u64]>,
    event_loop: Arc<EventLoop>,
    back: Arc<Back>,
    /// The number of the bridge.
    bridge: u32,
    env: sys::napi_env,
    drain: sys::napi_ref,
    cleanup: sys::napi_async_cleanup_hook_handle,
}

/// Lets the loop of this environment read for all clients that are given it, until the environment ends. `None` where it cannot.
pub(crate) fn watch(
    env: &Env,
    back: Arc<Back>,
    bridge: u32,
    drain: sys::napi_value,
) -> Option<Arc<EventLoop>> {
    let libuv = Libuv::of_this_process()?;
    let event_loop = Arc::new(EventLoop::new().ok()?);
    let env = env.raw();
    let mut uv_loop = null_mut();
    // SAFETY: `env` is the environment of the call that this runs in. The handle is memory of the size that libuv asks
    // for, stays where it is until it is closed, and is initialised before anything else is done with it.
    unsafe {
        if sys::napi_get_uv_event_loop(env, &mut uv_loop) != sys::Status::napi_ok {
            return None;
        }
        let mut handle = vec![0_u64; (libuv.handle_size)(UV_POLL).div_ceil(8)].into_boxed_slice();
        let raw: Handle = handle.as_mut_ptr().cast();
        if (libuv.poll_init)(uv_loop, raw, event_loop.as_raw_fd()) != 0 {
            return None;
        }
        (libuv.unref)(raw);
        let mut reference = null_mut();
        sys::napi_create_reference(env, drain, 1, &mut reference);
        let watch = Box::into_raw(Box::new(Watch {
            libuv,
            handle,
            event_loop: Arc::clone(&event_loop),
            back,
            bridge,
            env,
            drain: reference,
            cleanup: null_mut(),
        }));
        (libuv.set_data)(raw, watch.cast());
        sys::napi_add_async_cleanup_hook(env, Some(end), watch.cast(), &mut (*watch).cleanup);
        if (libuv.poll_start)(raw, UV_READABLE, readable) != 0 {
            // It would never turn, so nobody may be given it; the hook frees the rest.
            return None;
        }
    }
    Some(event_loop)
}

/// Something has come: reads it, and hands what is done to JavaScript in the same turn of the loop.
unsafe extern "C" fn readable(handle: Handle, _status: c_int, _events: c_int) {
    let Some(libuv) = Libuv::of_this_process() else {
        return;
    };
    // SAFETY: libuv calls this with the handle that was started, on the thread of its loop, and the data of it is the
    // watch until it is closed, which is never done from within. The watch is only read.
    let watch = unsafe { &*(libuv.data)(handle).cast::<Watch>() };
    watch.back.hush();
    // A panic is a bug and must not reach C.
    let turned = catch_unwind(AssertUnwindSafe(|| {
        watch.event_loop.turn(|| {
            if watch.back.speak()
                && let Ok(bridge) = bridge(watch.bridge)
            {
                bridge.turn(&Env::from_raw(watch.env), || {
                    // SAFETY: this is the thread of the environment, and libuv runs no callback from within JavaScript.
                    unsafe { call_drain(watch) };
                });
            }
        });
    }));
    if turned.is_err() && watch.back.speak() {
        watch.back.wake();
    }
}

/// SAFETY: on the thread of the environment, with no JavaScript running.
unsafe fn call_drain(watch: &Watch) {
    let env = watch.env;
    let (mut scope, mut drain, mut global) = (null_mut(), null_mut(), null_mut());
    // SAFETY: as the caller says; every value lives in the scope opened here. If the environment can no longer run
    // JavaScript, each of these calls says so and does nothing.
    unsafe {
        if sys::napi_open_handle_scope(env, &mut scope) != sys::Status::napi_ok {
            return;
        }
        sys::napi_get_reference_value(env, watch.drain, &mut drain);
        sys::napi_get_global(env, &mut global);
        // This callback, unlike a plain call, runs what promises have to run before it returns to the loop.
        let status = sys::napi_make_callback(env, null_mut(), global, drain, 0, null(), null_mut());
        if status == sys::Status::napi_pending_exception {
            let mut exception = null_mut();
            sys::napi_get_and_clear_last_exception(env, &mut exception);
            sys::napi_fatal_exception(env, exception);
        }
        sys::napi_close_handle_scope(env, scope);
    }
}

/// The environment ends: the handle is closed, and the environment waits until it is.
unsafe extern "C" fn end(_hook: sys::napi_async_cleanup_hook_handle, data: *mut c_void) {
    // SAFETY: the hook runs once, on the thread of the environment, with the watch that it was added with.
    unsafe {
        let watch = data.cast::<Watch>();
        sys::napi_delete_reference((*watch).env, (*watch).drain);
        ((*watch).libuv.close)((*watch).handle.as_mut_ptr().cast(), closed);
    }
}

unsafe extern "C" fn closed(handle: Handle) {
    // SAFETY: libuv calls this once, when it no longer looks at the handle.
    unsafe {
        let Some(libuv) = Libuv::of_this_process() else {
            return;
        };
        let watch = Box::from_raw((libuv.data)(handle).cast::<Watch>());
        sys::napi_remove_async_cleanup_hook(watch.cleanup);
    }
}
