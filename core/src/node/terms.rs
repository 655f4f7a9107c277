//! Keeps the engine supplied with terms: the first one, the next before a counter ends, and one above
//! any that a client has heard of. No term is used before it is on disk.

use super::clock;
use super::data_dir::DataDir;
use super::log::now_and_then;
use super::term;
use super::term_file;
use crate::engine::{Engine, Time};
use crate::protocol::{Millis, Token};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// How often what clients say may raise the term.
const RAISE_EVERY: Millis = Millis(1000);

/// What a node knows of terms.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Where terms are written down, unless the node is ephemeral.
    file: Option<Arc<TermFile>>,
    /// The term of this node's start.
    first: u32,
    /// The term that tokens are taken from.
    opened: u32,
    /// The greatest term that this node has opened or written down.
    known: u32,
    /// The greatest term that a client has named, as far as it counts.
    heard: u32,
    /// When a client's word may raise the term again.
    raise_from: Time,
}

impl Terms {
    pub(crate) fn new(dir: Option<Arc<DataDir>>, first: u32) -> Terms {
        Terms {
            file: dir.map(|dir| {
                Arc::new(TermFile {
                    dir,
                    written: Mutex::new(first),
                })
            }),
            first,
            opened: first,
            known: first,
            heard: 0,
            raise_from: Time(0),
        }
    }

    /// A client knows of this token.
    pub(crate) fn hear(&mut self, seen: Token) {
        let term = (seen.get() >> 32) as u32;
        // A term that is only written down does not yet make the next token greater.
        if term <= self.opened.max(self.heard) {
            return;
        }
        if term::client_may_say(term, clock::wall(), self.first) {
            self.heard = term;
        } else {
            now_and_then!(
                warn,
                "a client says that it has seen term {term}, more than a year beyond the wall clock; ignored"
            );
        }
    }

    /// When [`Terms::raise`] has something to do.
    pub(crate) fn raise_at(&self) -> Option<Time> {
        (self.heard > self.opened).then_some(self.raise_from)
    }

    /// Opens a term above what clients have named, if they have and the time has come.
    pub(crate) fn raise(&mut self, now: Time, engine: &mut Engine) {
        if self.raise_at().is_none_or(|at| now < at) {
            return;
        }
        self.raise_from = now.after(RAISE_EVERY);
        let Some(next) = self.next(self.heard) else {
            return;
        };
        // Nothing may be granted in between, so this write is waited for; a disk takes some milliseconds.
        if let Err(error) = self.file.as_ref().map_or(Ok(()), |file| file.write(next)) {
            now_and_then!(
                error,
                "cannot write term {next}, which is above one that a client has seen: {error}; trying again"
            );
            return;
        }
        self.known = next;
        match engine.open_term(next, SLOT, 0) {
            Ok(()) => {
                self.opened = next;
                now_and_then!(
                    info,
                    "opened term {next}, because a client had seen term {}",
                    self.heard
                );
            }
            Err(error) => now_and_then!(error, "{error}"),
        }
    }

    /// The term that clients have named, if it has to be opened above. Where a node is active, and so
    /// stands still until it has, only once the time has come.
    pub(crate) fn take_heard(&mut self, now: Time, active: bool) -> Option<u32> {
        self.raise_at().filter(|at| !active || *at <= now)?;
        self.raise_from = now.after(RAISE_EVERY);
        Some(self.heard)
    }

    /// How to write a term that a node with peers is to open; `None` where there is no disk.
    pub(crate) fn write(&self, term: u32) -> Option<TermWrite> {
        self.file.is_some().then(|| self.write_of(term))
    }

    /// How to write a term.
    pub(crate) fn write_of(&self, term: u32) -> TermWrite {
        TermWrite {
            file: self.file.clone(),
            term,
        }
    }

    /// A term has been written that a node with peers may open.
    pub(crate) fn noted(&mut self, term: u32) {
        self.known = self.known.max(term);
    }

    /// The term that was written in the background is the one that tokens are taken from.
    pub(crate) fn opened(&mut self, term: u32) {
        self.opened = self.opened.max(term);
    }

    /// The term to write in the background, because the counter of the present one is half used.
    pub(crate) fn to_write(&self) -> Option<TermWrite> {
        let term = self.next(self.heard)?;
        Some(self.write_of(term))
    }

    /// A term has been written in the background.
    pub(crate) fn written(&mut self, term: u32, engine: &mut Engine) {
        // A client's word may have led further meanwhile.
        if term <= self.known {
            return;
        }
        self.known = term;
        if let Err(error) = engine.provide_next_term(term) {
            now_and_then!(error, "{error}");
        }
    }

    fn next(&self, heard: u32) -> Option<u32> {
        let next = term::next_term(self.known.max(heard), clock::wall());
        if next.is_none() {
            now_and_then!(
                error,
                "no term is left after {}; grants end with the present one",
                self.known.max(heard)
            );
        }
        next
    }
}

/// The term file of a node that runs.
#[derive(Debug)]
struct TermFile {
    dir: Arc<DataDir>,
    /// The term that stands in it. Held while it is written, so that two writes cannot end in the wrong order.
    written: Mutex<u32>,
}

impl TermFile {
    /// Sees to it that the file has this term or a greater one; blocks.
    fn write(&self, term: u32) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if term > *written {
            term_file::write(&self.dir, term)?;
            *written = term;
        }
        Ok(())
    }

    /// As [`TermFile::write`], and writes in any case, so that it shows whether the disk can.
    fn write_through(&self, term: u32) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let term = term.max(*written);
        term_file::write(&self.dir, term)?;
        *written = term;
        Ok(())
    }
}

/// The node's place in the list of nodes.
pub(crate) const SLOT: u8 = 0;

/// Where the counter of a first term begins: a node that remembers nothing and starts twice within a
/// second must not repeat a token. In the lower half, so that the next term comes before the counter ends.
pub(crate) fn first_counter(ephemeral: bool, nanos_of_second: u32) -> u32 {
    if !ephemeral {
        return 0;
    }
    ((u64::from(nanos_of_second) << 27) / 1_000_000_000) as u32
}

/// A term that is to be written down.
#[derive(Debug)]
pub(crate) struct TermWrite {
    file: Option<Arc<TermFile>>,
    term: u32,
}

impl TermWrite {
    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    /// Writes it even if it stands there; blocks.
    pub(crate) fn write_through(&self) -> io::Result<()> {
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.write_through(self.term))
    }

    /// Writes it; blocks.
    pub(crate) fn write(&self) -> io::Result<()> {
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.write(self.term))
    }
}

#[cfg(test)]
mod tests {
    use super::super::term::Wall;
    use super::*;
    use crate::engine::EngineSettings;

    #[test]
    fn the_counter_of_a_node_without_memory_begins_at_the_fraction_of_the_second() {
        assert_eq!(first_counter(false, 999_999_999), 0);
        assert_eq!(first_counter(true, 0), 0);
        assert_eq!(first_counter(true, 500_000_000), 1 << 26);
        assert!(first_counter(true, 999_999_999) < 1 << 27);
    }
    #[test]
    fn what_clients_say_waits_for_its_time_only_where_the_node_is_active() {
        let Wall::Seconds(now) = clock::wall() else {
            panic!("the clock of this machine is beyond 2090");
        };
        let mut terms = Terms::new(None, now);
        let seen = |term: u32| Token::new(u64::from(term) << 32 | 9).expect("a token");
        terms.hear(seen(now + 10));
        assert_eq!(terms.take_heard(Time(0), true), Some(now + 10));
        terms.hear(seen(now + 20));
        assert_eq!(terms.take_heard(Time(1), true), None);
        assert_eq!(terms.take_heard(Time(1), false), Some(now + 20));
        assert_eq!(terms.take_heard(Time(1_000_001), true), Some(now + 20));
    }

    #[test]
    fn a_term_that_is_written_and_not_opened_does_not_hide_one_that_a_client_has_seen() {
        let Wall::Seconds(now) = clock::wall() else {
            panic!("the clock of this machine is beyond 2090");
        };
        let term = now + 1000;
        let mut engine = Engine::new(EngineSettings::default(), 1);
        engine.open_term(term, SLOT, 0).expect("the first term");
        let mut terms = Terms::new(None, term);
        terms.written(term + 1, &mut engine);
        let seen = Token::new(u64::from(term + 1) << 32 | 9).expect("a token");
        terms.hear(seen);
        terms.raise(Time(0), &mut engine);
        assert_eq!(engine.stats().term, term + 2);
        assert_eq!(terms.raise_at(), None);
    }
}
