//! `fairlock inspect`, `waiters` and `locks`: who holds what and who waits for it.

use super::json::{self, Inspection, InspectionRest, Queue};
use crate::arguments::{KeyQuery, Locks};
use crate::exit::{self, Failure};
use crate::text::{self, Table};
use crate::values::show_seconds;
use fairlock::protocol::limits;
use fairlock::{Client, DEFAULT_ROWS, HeldLock, KeyState};
use std::io::{self, BufWriter, Write};

/// Shows who holds a key.
pub(crate) fn inspect(arguments: &KeyQuery) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let key = arguments.key.bytes();
    let state = client.inspect(key).call()?;
    let mut out = io::stdout().lock();
    if arguments.json {
        let inspection = match &state {
            KeyState::Free { waiters } => Inspection {
                state: "free",
                rest: InspectionRest::Free {
                    key: key.into(),
                    waiters: *waiters,
                },
            },
            KeyState::Held(lock) => Inspection {
                state: "held",
                rest: InspectionRest::Held(lock.into()),
            },
        };
        json::print(&mut out, &inspection)?;
        return Ok(exit::OK);
    }
    if matches!(state, KeyState::Free { waiters: 0 }) {
        tell_of_spelling(&client, key);
    }
    let key = text::key(key);
    match state {
        KeyState::Free { waiters: 0 } => writeln!(out, "{key} is free")?,
        KeyState::Free { waiters } => {
            writeln!(
                out,
                "{key} is free, kept for a moment for one of {waiters} waiting"
            )?;
        }
        KeyState::Held(lock) => {
            writeln!(out, "{key} is held")?;
            writeln!(out, "token    {}", lock.token)?;
            writeln!(out, "left     {} s", show_seconds(lock.remaining))?;
            writeln!(out, "waiting  {}", lock.waiters)?;
            writeln!(
                out,
                "holder   {} at {}",
                text::name(lock.name.as_deref()),
                text::safe(lock.address.as_bytes())
            )?;
        }
    }
    Ok(exit::OK)
}

/// Says so where a key that nobody holds is how one that is held is spelled on the wire: whoever has it from the log, the
/// admin page or a table meant that one.
pub(super) fn tell_of_spelling(client: &Client, key: &[u8]) {
    let Some(meant) = text::unescape(key) else {
        return;
    };
    // Who may not look there is told nothing.
    let Ok(KeyState::Held(_)) = client.inspect(&meant).call() else {
        return;
    };
    let typed = match text::key(&meant) {
        shown if shown.as_bytes() != key => Some(shown),
        _ => text::key_in_bash(&meant),
    };
    let key = text::key(key);
    exit::tell(match typed {
        Some(typed) => format!("{key} is also how the held key {typed} is spelled"),
        None => format!("{key} is also how a held key is spelled that no argument can name"),
    });
}

/// Shows who waits for a key.
pub(crate) fn waiters(arguments: &KeyQuery) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let key = arguments.key.bytes();
    let queue = client.waiters(key, limits::ROWS_MAX).call()?;
    let mut out = BufWriter::new(io::stdout().lock());
    if arguments.json {
        let queue = Queue {
            key: key.into(),
            count: queue.count,
            waiters: queue.first.iter().map(Into::into).collect(),
        };
        json::print(&mut out, &queue)?;
    } else {
        let mut table = Table::new([">PLACE", ">WAITED", "ADDRESS", "NAME"]);
        for waiter in &queue.first {
            table.push([
                waiter.position.to_string(),
                format!("{:.1} s", waiter.waited.as_secs_f64()),
                text::safe(waiter.address.as_bytes()),
                text::name(waiter.name.as_deref()),
            ]);
        }
        if queue.first.is_empty() {
            tell_of_spelling(&client, key);
            writeln!(out, "nobody waits for {}", text::key(key))?;
        } else {
            table.write(&mut out)?;
        }
        let more = queue.count.saturating_sub(queue.first.len() as u64);
        if more > 0 {
            writeln!(out, "and {more} more")?;
        }
    }
    out.flush()?;
    Ok(exit::OK)
}

/// Lists the held keys, page by page, so that a million of them take no more memory than a thousand.
pub(crate) fn locks(arguments: &Locks) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let prefix = arguments
        .prefix
        .as_ref()
        .map_or(&[][..], |prefix| &prefix.0);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut printer = if arguments.json {
        Printer::Json { rows: 0 }
    } else {
        Printer::Table(Table::new([
            ">TOKEN", ">LEFT", ">WAITING", "ADDRESS", "NAME", "KEY",
        ]))
    };
    let mut after: Option<Vec<u8>> = None;
    let mut first = true;
    loop {
        let page = client
            .locks(prefix, after.as_deref(), DEFAULT_ROWS)
            .call()?;
        if first {
            // Not before the server has answered, so that a failure leaves no half of an output.
            printer.begin(&mut out)?;
            first = false;
        }
        for lock in &page.locks {
            printer.row(&mut out, lock)?;
        }
        printer.page(&mut out)?;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    printer.end(&mut out)?;
    out.flush()?;
    Ok(exit::OK)
}

enum Printer {
    Json { rows: u64 },
    Table(Table<6>),
}

impl Printer {
    fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Printer::Json { .. } => write!(out, "{{\"locks\":["),
            Printer::Table(_) => Ok(()),
        }
    }

    fn row(&mut self, out: &mut impl Write, lock: &HeldLock) -> io::Result<()> {
        match self {
            Printer::Json { rows } => {
                out.write_all(if *rows == 0 { b"\n" } else { b",\n" })?;
                *rows += 1;
                serde_json::to_writer(out, &json::Lock::from(lock))?;
            }
            Printer::Table(table) => table.push([
                lock.token.to_string(),
                format!("{:.1} s", lock.remaining.as_secs_f64()),
                lock.waiters.to_string(),
                text::safe(lock.address.as_bytes()),
                text::name(lock.name.as_deref()),
                text::key(&lock.key),
            ]),
        }
        Ok(())
    }

    fn page(&mut self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Printer::Json { .. } => Ok(()),
            Printer::Table(table) => table.write(out),
        }
    }

    fn end(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Printer::Json { rows } => writeln!(out, "\n],\"count\":{rows}}}"),
            Printer::Table(_) => Ok(()),
        }
    }
}
