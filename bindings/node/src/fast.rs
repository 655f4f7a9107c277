//! The calls that every lock makes, written against Node-API itself: what the macros of napi-rs put around a function, for
//! objects that it borrows, takes more time than the rest of such a call. Each function knows its bridge.
//!
//! Beside `event_loop` this is the place with `unsafe`: Node-API is C.
#![allow(unsafe_code)]

use crate::bridge::{Begun, Bridge, Done};
use crate::client::{acquire, try_acquire};
use crate::convert::{Key, key_bytes};
use napi::bindgen_prelude::{Either, FromNapiValue, JsValue, ToNapiValue, Unknown};
use napi::{Env, Error, JsError, Result, Status, sys};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::rc::Rc;

/// Most keys in UTF-8 are shorter; others take one more copy.
const SHORT_KEY: usize = 256;

/// The most values that one of the functions takes.
const VALUES: usize = 6;

type Function = unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;

/// Puts the functions into an object of JavaScript.
pub(crate) fn functions<'a>(env: &'a Env, bridge: &Rc<Bridge>) -> Result<Unknown<'a>> {
    const FUNCTIONS: [(&str, Function); 4] = [
        ("acquire", call::<Acquire>),
        ("tryAcquire", call::<TryAcquire>),
        ("releaseLock", call::<Release>),
        ("drain", call::<Drain>),
    ];
    let env = env.raw();
    let mut object = null_mut();
    // The environment keeps the bridge until it ends, and runs no JavaScript after that.
    let data = Rc::as_ptr(bridge).cast_mut().cast();
    // SAFETY: `env` is the environment of the call that this runs in, and names are given with their lengths.
    unsafe {
        checked(sys::napi_create_object(env, &mut object))?;
        for (name, function) in FUNCTIONS {
            let (mut property, mut value) = (null_mut(), null_mut());
            let (text, length) = (name.as_ptr().cast(), name.len() as isize);
            checked(sys::napi_create_string_utf8(
                env,
                text,
                length,
                &mut property,
            ))?;
            checked(sys::napi_create_function(
                env,
                text,
                length,
                Some(function),
                data,
                &mut value,
            ))?;
            checked(sys::napi_set_property(env, object, property, value))?;
        }
    }
    // SAFETY: as above.
    unsafe { Unknown::from_napi_value(env, object) }
}

fn checked(status: sys::napi_status) -> Result<()> {
    match status {
        sys::Status::napi_ok => Ok(()),
        other => Err(Error::from_status(Status::from(other))),
    }
}

/// One of the functions.
trait Call {
    /// SAFETY: on the thread of `env`, within a call from JavaScript with these values.
    unsafe fn run(
        bridge: &Bridge,
        env: &Env,
        values: &[sys::napi_value],
    ) -> Result<sys::napi_value>;
}

unsafe extern "C" fn call<C: Call>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let mut values = [null_mut(); VALUES];
    let mut count = VALUES;
    let mut data: *mut c_void = null_mut();
    // SAFETY: Node-API calls this with an environment and the call, and there is room for `count` values.
    let status = unsafe {
        sys::napi_get_cb_info(
            env,
            info,
            &mut count,
            values.as_mut_ptr(),
            null_mut(),
            &mut data,
        )
    };
    // A panic is a bug and must not reach C.
    let result = checked(status).and_then(|()| {
        catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the data is the bridge of `functions`, which is there as long as JavaScript runs, and all else is as above.
            unsafe {
                C::run(
                    &*data.cast::<Bridge>(),
                    &Env::from_raw(env),
                    &values[..count.min(VALUES)],
                )
            }
        }))
        .unwrap_or_else(|_| Err(Error::from_reason("fairlock has panicked")))
    });
    result.unwrap_or_else(|error| {
        // SAFETY: as above.
        unsafe { JsError::from(error).throw_into(env) };
        null_mut()
    })
}

/// SAFETY: as of [`Call::run`].
unsafe fn given<T: FromNapiValue>(
    env: &Env,
    values: &[sys::napi_value],
    place: usize,
) -> Result<T> {
    let missing = || Error::new(Status::InvalidArg, "a value is missing");
    let value = *values.get(place).ok_or_else(missing)?;
    // SAFETY: the value is one of this call; a wrong type is an error.
    unsafe { T::from_napi_value(env.raw(), value) }
}

/// SAFETY: as of [`Call::run`].
unsafe fn optional(env: &Env, values: &[sys::napi_value], place: usize) -> Result<Option<f64>> {
    match values.get(place) {
        None => Ok(None),
        // SAFETY: as the caller says.
        Some(_) => unsafe { given(env, values, place) },
    }
}

/// SAFETY: as of [`Call::run`].
unsafe fn with_key<T>(
    env: &Env,
    values: &[sys::napi_value],
    place: usize,
    then: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    let mut text = [0_u8; SHORT_KEY];
    let mut length = 0;
    if let Some(value) = values.get(place) {
        // SAFETY: there is room for so many bytes.
        let status = unsafe {
            let room = text.as_mut_ptr().cast();
            sys::napi_get_value_string_utf8(env.raw(), *value, room, SHORT_KEY, &mut length)
        };
        // Where no character of four bytes and no end fits any more, some of the text may be missing.
        if status == sys::Status::napi_ok && length + 5 <= SHORT_KEY {
            return then(&text[..length]);
        }
    }
    // SAFETY: as the caller says.
    let key: Key<'_> = unsafe { given(env, values, place)? };
    then(key_bytes(&key))
}

fn begun(env: &Env, begun: Begun) -> Result<sys::napi_value> {
    match begun {
        Either::A(number) => Ok(number_of(env, number)),
        // SAFETY: on the thread of the environment, within a call.
        Either::B(failure) => unsafe { ToNapiValue::to_napi_value(env.raw(), failure) },
    }
}

fn number_of(env: &Env, number: u32) -> sys::napi_value {
    let mut value = null_mut();
    // SAFETY: on the thread of the environment, within a call. It cannot fail there.
    unsafe { sys::napi_create_uint32(env.raw(), number, &mut value) };
    value
}

/// Client, key, and options by place: the wait, the lease, `max_hold`, and whether the lock is kept alive as a number.
struct Acquire;

impl Call for Acquire {
    unsafe fn run(
        bridge: &Bridge,
        env: &Env,
        values: &[sys::napi_value],
    ) -> Result<sys::napi_value> {
        // SAFETY: as the caller says.
        unsafe {
            let client = given(env, values, 0)?;
            let wait = optional(env, values, 2)?;
            let terms = [
                optional(env, values, 3)?,
                optional(env, values, 4)?,
                optional(env, values, 5)?,
            ];
            let result = with_key(env, values, 1, |key| {
                acquire(env, bridge, client, key, wait, terms)
            })?;
            begun(env, result)
        }
    }
}

/// Client, key, and options by place: the lease, `max_hold`, and whether the lock is kept alive as a number.
struct TryAcquire;

impl Call for TryAcquire {
    unsafe fn run(
        bridge: &Bridge,
        env: &Env,
        values: &[sys::napi_value],
    ) -> Result<sys::napi_value> {
        // SAFETY: as the caller says.
        unsafe {
            let client = given(env, values, 0)?;
            let terms = [
                optional(env, values, 2)?,
                optional(env, values, 3)?,
                optional(env, values, 4)?,
            ];
            let result = with_key(env, values, 1, |key| {
                try_acquire(env, bridge, client, key, terms)
            })?;
            begun(env, result)
        }
    }
}

/// The number of a lock.
struct Release;

impl Call for Release {
    unsafe fn run(
        bridge: &Bridge,
        env: &Env,
        values: &[sys::napi_value],
    ) -> Result<sys::napi_value> {
        // SAFETY: as the caller says.
        let lock = unsafe { given(env, values, 0)? };
        begun(env, bridge.release(env, lock)?)
    }
}

/// The array for the entries and the one for objects.
struct Drain;

impl Call for Drain {
    unsafe fn run(
        bridge: &Bridge,
        env: &Env,
        values: &[sys::napi_value],
    ) -> Result<sys::napi_value> {
        let &[entries, objects] = values else {
            return Err(Error::new(Status::InvalidArg, "a value is missing"));
        };
        let (mut length, mut memory) = (0, null_mut());
        // SAFETY: as the caller says.
        let entries = unsafe {
            checked(sys::napi_get_typedarray_info(
                env.raw(),
                entries,
                null_mut(),
                &mut length,
                &mut memory,
                null_mut(),
                null_mut(),
            ))?;
            // SAFETY: an `Int32Array` that only `lib/bridge.js` has, and no JavaScript runs before this returns.
            std::slice::from_raw_parts_mut(memory.cast::<i32>(), length)
        };
        let mut count = 0;
        let used = bridge.drain(env, entries, |object| {
            // SAFETY: both are values of this call.
            let status = unsafe {
                let value = match object {
                    Done::Object(object) => object.into_js(env)?.raw(),
                    Done::Failure(failure) => ToNapiValue::to_napi_value(env.raw(), failure)?,
                };
                sys::napi_set_element(env.raw(), objects, count, value)
            };
            count += 1;
            checked(status)
        })?;
        Ok(number_of(env, used))
    }
}
