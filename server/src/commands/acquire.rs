//! `fairlock acquire`: takes a lock, prints its token and leaves it held. A lock whose token could
//! not be told to anybody is released again.

use crate::arguments::Acquire;
use crate::connect;
use crate::exit::{self, Failure};
use crate::inbox::{Inbox, Received};
use crate::text;
use fairlock::{Error, Lock};
use nix::sys::signal::Signal;
use std::io::{self, Write};
use std::time::Instant;

/// What ends the wait. The terminal may stop and continue this process as any other.
const SIGNALS: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Takes the lock.
pub(crate) fn acquire(arguments: &Acquire) -> Result<u8, Failure> {
    // Before any thread is there, so that all of them leave the signals to the inbox.
    let inbox = Inbox::new(&SIGNALS).map_err(|error| {
        Failure::new(
            exit::FAILED,
            format_args!("cannot listen for signals: {error}"),
        )
    })?;
    let lock = wait_for(&inbox, arguments)?;
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", lock.token()).and_then(|()| out.flush()) {
        Ok(()) => {
            lock.leave_held();
            Ok(exit::OK)
        }
        Err(error) => {
            let freed = match lock.release().call() {
                Ok(_) => "so it is released again".to_owned(),
                Err(error) => error.to_string(),
            };
            Err(Failure::new(
                exit::FAILED,
                format_args!("the token cannot be printed ({error}), {freed}"),
            ))
        }
    }
}

fn wait_for(
    inbox: &Inbox<Result<Option<Lock>, Error>>,
    arguments: &Acquire,
) -> Result<Lock, Failure> {
    let client = arguments.connection.client_for(&arguments.want)?;
    let key = arguments.key.bytes();
    arguments.want.check_for_outer_run(&client, key)?;
    let done = inbox.sender();
    let pending = arguments
        .want
        .submit(&client, key, false, move |result| done.send(result));
    let mut ended_by = None;
    let mut tell_at = connect::quiet_wait().map(|time| Instant::now() + time);
    loop {
        let quiet = tell_at.map(|time| time.saturating_duration_since(Instant::now()));
        let received = inbox
            .next(quiet)
            .map_err(|error| Failure::new(exit::FAILED, format_args!("cannot wait: {error}")))?;
        match (received, ended_by) {
            (None, _) => {
                if tell_at.take_if(|time| *time <= Instant::now()).is_some() {
                    connect::tell_of_wait(&client, key);
                }
            }
            (Some(Received::Signal { number, .. }), None) => {
                ended_by = Some(number);
                pending.cancel();
            }
            // Whoever says it again does not want to wait for an answer of the server.
            (Some(Received::Signal { .. }), Some(number)) => return Err(Failure::signal(number)),
            (Some(Received::Message(result)), Some(number)) => {
                if let Ok(Some(lock)) = result {
                    // Nothing can be done about a release that nobody answers.
                    let _ = lock.release().call();
                }
                // Until the server knows that nobody waits any more, for at most a second.
                let _ = client.close().call();
                return Err(Failure::signal(number));
            }
            (Some(Received::Message(result)), None) => {
                return result?.ok_or_else(|| {
                    let key = text::key(key);
                    Failure::new(exit::NOT_HAD, format_args!("somebody else holds {key}"))
                });
            }
        }
    }
}
