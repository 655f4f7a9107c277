//! A node inside this process.

use crate::bridge::{Begun, bridge};
use crate::convert::{in_camel_case, milliseconds};
use crate::outcome::Failure;
use fairlock::node::{Setting, SettingKind, Settings};
use fairlock::{Server, ServerError};
use napi::bindgen_prelude::{Either3, External};
use napi::{Env, Error, Result};
use napi_derive::napi;
use std::cell::RefCell;
use std::collections::HashMap;
use std::thread;

/// A node that serves. Dropping it stops it.
pub(crate) struct RunningServer {
    address: String,
    server: RefCell<Option<Server>>,
}

type Value = Either3<String, f64, bool>;

/// The names of all settings in JavaScript, so that the types can be tested against them.
#[napi(catch_unwind)]
pub(crate) fn server_settings() -> Vec<String> {
    Settings::ALL.iter().map(name).collect()
}

/// Starts a node with these settings. Ends with a [`RunningServer`].
#[napi(catch_unwind)]
pub(crate) fn start_server(env: &Env, at: u32, given: HashMap<String, Value>) -> Result<Begun> {
    bridge(at)?.begin(env, settings(given), |settings, teller| {
        thread::spawn(move || {
            let started = Server::builder().settings(settings).start_blocking();
            teller.tell(started.map(RunningServer::new).map_err(failure));
        });
        None
    })
}

/// Stops the node, in order or as if its process had been killed. Ends when it has ended, at once if it
/// was stopped before.
#[napi(catch_unwind)]
pub(crate) fn stop_server(
    env: &Env,
    at: u32,
    running: &External<RunningServer>,
    in_order: bool,
) -> Result<Begun> {
    let how = if in_order {
        Server::stop_blocking
    } else {
        Server::kill
    };
    let server = Ok::<_, Failure>(running.server.take());
    bridge(at)?.begin(env, server, move |server, teller| {
        thread::spawn(move || {
            let stopped = server.map_or(Ok(()), how);
            teller.tell(stopped.map_err(failure));
        });
        None
    })
}

/// A free address for a node that this process starts later.
#[napi(catch_unwind)]
pub(crate) fn free_address() -> Result<String> {
    let address = Server::free_address().map_err(|error| Error::from_reason(error.to_string()))?;
    Ok(address.to_string())
}

/// Where it listens.
#[napi(catch_unwind)]
pub(crate) fn server_address(running: &External<RunningServer>) -> String {
    running.address.clone()
}

impl RunningServer {
    fn new(server: Server) -> RunningServer {
        RunningServer {
            address: server.address().to_string(),
            server: RefCell::new(Some(server)),
        }
    }
}

/// `max_lease` is `maxLeaseMs` in JavaScript: names of times end in their unit there.
fn name(setting: &Setting) -> String {
    let mut name = in_camel_case(setting.name);
    if setting.kind == SettingKind::Seconds {
        name += "Ms";
    }
    name
}

fn settings(given: HashMap<String, Value>) -> std::result::Result<Settings, Failure> {
    let mut settings = Settings::default();
    for (given_name, value) in given {
        let setting = Settings::ALL
            .iter()
            .find(|setting| name(setting) == given_name)
            .ok_or_else(|| Failure::wrong_type(format!("there is no option `{given_name}`")))?;
        let text = text(setting, &given_name, value)?;
        settings
            .set(setting.name, &text)
            .map_err(|error| failure(error.into()))?;
    }
    settings.check().map_err(|error| failure(error.into()))?;
    Ok(settings)
}

/// The value as [`Settings::set`] reads it.
fn text(setting: &Setting, name: &str, value: Value) -> std::result::Result<String, Failure> {
    let expected = match (setting.kind, value) {
        (SettingKind::Seconds, Either3::B(number)) => {
            return Ok(milliseconds(name, number)?.as_secs_f64().to_string());
        }
        (SettingKind::Number | SettingKind::Bytes | SettingKind::Spin, Either3::B(number)) => {
            return Ok(number.to_string());
        }
        (SettingKind::Flag, Either3::C(flag)) => return Ok(flag.to_string()),
        (
            SettingKind::Text
            | SettingKind::Path
            | SettingKind::Secret
            | SettingKind::Bytes
            | SettingKind::Spin
            | SettingKind::Choice(_),
            Either3::A(text),
        ) => return Ok(text),
        (SettingKind::Seconds | SettingKind::Number, _) => "a number",
        (SettingKind::Flag, _) => "true or false",
        (SettingKind::Bytes | SettingKind::Spin, _) => "a number or a string",
        (
            SettingKind::Text | SettingKind::Path | SettingKind::Secret | SettingKind::Choice(_),
            _,
        ) => "a string",
    };
    Err(Failure::wrong_type(format!("{name} has to be {expected}")))
}

fn failure(error: ServerError) -> Failure {
    let kind = match error {
        ServerError::Setting(_) => "InvalidArgument",
        _ => "Server",
    };
    Failure {
        kind,
        message: error.to_string(),
        reason: None,
    }
}
