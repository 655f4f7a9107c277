//! How a journal is spelled: a header that says whose it is, then records, each with its check sum. Bytes
//! in, meaning out; files are the business of others.
//!
//! ```text
//! fairlock journal, version 1 ⏎ node … ⏎ check … ⏎
//! ┌──────┬────────┬───────┬──────┬──────────┬───────────────┐
//! │ mark │ length │ check │ wall │ position │ frame's body  │ …
//! └──────┴────────┴───────┴──────┴──────────┴───────────────┘
//!                          └──── what is checked ───────────┘
//! ```
//!
//! A record that is cut short or altered is seen, and whether good ones stand behind it: a write that was
//! under way at the end is no loss, a hole is.

use crate::cluster::{FRAME_BYTES, Stream};
use memchr::memmem;
use std::io::{self, Read};

/// What a journal of any version begins with.
const TITLE: &str = "fairlock journal, version ";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;
/// No header is longer.
const HEADER_BYTES: usize = 1024;

/// What every record begins with.
const MARK: [u8; 4] = [0xFA, 0x1C, 0x10, 0xC5];
/// Mark, length and check sum.
const HEAD_BYTES: usize = 12;
/// The moment and the position.
const STAMP_BYTES: usize = 21;
/// No record is longer, its head not counted.
const RECORD_BYTES: usize = STAMP_BYTES + FRAME_BYTES;
/// The least that a disk writes.
const SECTOR_BYTES: u64 = 512;
/// How much is read at once.
const READ_BYTES: usize = 1 << 20;

/// What stands beside each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    /// When it was written, in microseconds of the wall clock.
    pub(crate) wall: u64,
    /// Up to where the changes of the cluster are in the journal with it.
    pub(crate) stream: Stream,
    pub(crate) sequence: u64,
}

/// Why a file is no journal that this node can use. Each says what it is, not what to do.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Something else, or its beginning is damaged.
    #[error("it does not begin as a journal does")]
    NoJournal,
    /// Of a later version of fairlock.
    #[error(
        "its format has version {0}, and this version of fairlock knows only version {VERSION}"
    )]
    Newer(u32),
    /// Of another node.
    #[error("it is the journal of {0}, and this node is {1}")]
    OtherNode(String, String),
    /// Damaged at this place.
    #[error("at byte {0} there is a record that {1}")]
    Damaged(u64, &'static str),
}

/// The header of a node's journal.
pub(crate) fn header(node: &str) -> Vec<u8> {
    let mut text = format!("{TITLE}{VERSION}\nnode {node}\n");
    let check = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("check {check:08x}\n"));
    text.into_bytes()
}

/// Whose journal it is that begins so, and where its records begin.
fn read_header(bytes: &[u8]) -> Result<(&str, usize), Problem> {
    let bytes = &bytes[..bytes.len().min(HEADER_BYTES)];
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut line = || {
        let line = std::str::from_utf8(lines.next()?).ok()?;
        Some((line.strip_suffix('\n')?, line.len()))
    };
    let (title, title_length) = line().ok_or(Problem::NoJournal)?;
    let version = title.strip_prefix(TITLE).ok_or(Problem::NoJournal)?;
    let version: u32 = version.parse().map_err(|_| Problem::NoJournal)?;
    if version > VERSION {
        return Err(Problem::Newer(version));
    }
    let (node, node_length) = line().ok_or(Problem::NoJournal)?;
    let node = node.strip_prefix("node ").ok_or(Problem::NoJournal)?;
    let (_, check_length) = line().ok_or(Problem::NoJournal)?;
    let length = title_length + node_length + check_length;
    if bytes[..length] != header(node) {
        return Err(Problem::NoJournal);
    }
    Ok((node, length))
}

/// Appends a record whose frame `spell` appends.
pub(crate) fn append(out: &mut Vec<u8>, stamp: &Stamp, spell: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    let mut head = [0; HEAD_BYTES + STAMP_BYTES];
    head[..4].copy_from_slice(&MARK);
    head[12..20].copy_from_slice(&stamp.wall.to_le_bytes());
    head[20..24].copy_from_slice(&stamp.stream.term.to_le_bytes());
    head[24] = stamp.stream.slot;
    head[25..].copy_from_slice(&stamp.sequence.to_le_bytes());
    out.extend_from_slice(&head);
    spell(out);
    let checked = &out[begin + HEAD_BYTES..];
    let (length, check) = (checked.len() as u32, crc32fast::hash(checked));
    out[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
    out[begin + 8..begin + 12].copy_from_slice(&check.to_le_bytes());
}

/// What a journal goes on with.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// A record that begins at this byte.
    Record(u64, Stamp, &'a [u8]),
    /// Nothing.
    End,
    /// Something that is no record.
    Bad,
}

/// What stands behind a bad record, that one included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    /// Whether a good one does.
    pub(super) good: bool,
    /// Whether a whole sector before that is empty, as one that was never written.
    pub(super) empty_sector: bool,
    /// How much.
    pub(super) bytes: u64,
}

/// Reads one record after the other.
pub(super) struct Records<R> {
    input: R,
    /// What has been read and not been taken, from `taken` on.
    buffer: Vec<u8>,
    taken: usize,
    /// Where that stands in the journal.
    at: u64,
}

impl<R: Read> Records<R> {
    /// Begins with the header: whose journal it is.
    pub(super) fn new(input: R) -> Result<(Records<R>, String), Problem> {
        let mut records = Records {
            input,
            buffer: Vec::new(),
            taken: 0,
            at: 0,
        };
        records.fill(HEADER_BYTES)?;
        let (node, length) = read_header(&records.buffer)?;
        let node = node.to_owned();
        records.take(length);
        Ok((records, node))
    }

    /// Where the next one begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next one.
    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        self.fill(HEAD_BYTES)?;
        if self.left().is_empty() {
            return Ok(Next::End);
        }
        let Some(length) = length(self.left()) else {
            return Ok(Next::Bad);
        };
        let whole = HEAD_BYTES + length;
        self.fill(whole)?;
        let Some((stamp, _)) = record(self.left()) else {
            return Ok(Next::Bad);
        };
        let (at, begin) = (self.at, self.taken + HEAD_BYTES + STAMP_BYTES);
        self.take(whole);
        Ok(Next::Record(at, stamp, &self.buffer[begin..self.taken]))
    }

    /// What stands behind a bad record.
    pub(super) fn look_behind(mut self) -> io::Result<Behind> {
        let mut rest = self.buffer.split_off(self.taken);
        self.input.read_to_end(&mut rest)?;
        let behind = rest.get(1..).unwrap_or_default();
        let good = memmem::find_iter(behind, &MARK)
            .map(|place| place + 1)
            .find(|place| record(&rest[*place..]).is_some());
        let until_good = &rest[..good.unwrap_or(rest.len())];
        // The first may have begun before the record, with zeros that belong there.
        let first = (self.at.next_multiple_of(SECTOR_BYTES) - self.at) as usize;
        let (first, others) = until_good.split_at_checked(first).unwrap_or_default();
        let others = others.chunks_exact(SECTOR_BYTES as usize);
        let mut sectors = others.chain((!first.is_empty()).then_some(first));
        Ok(Behind {
            good: good.is_some(),
            empty_sector: sectors.any(|sector| sector.iter().all(|byte| *byte == 0)),
            bytes: rest.len() as u64,
        })
    }

    fn left(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        self.at += count as u64;
    }

    /// Reads until so many bytes are there, or no more come.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.left().len() >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let missing = wanted.max(READ_BYTES) - self.buffer.len();
        let mut input = self.input.by_ref().take(missing as u64);
        input.read_to_end(&mut self.buffer)?;
        Ok(())
    }
}

/// How long the record is that begins here, its head not counted.
fn length(bytes: &[u8]) -> Option<usize> {
    let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    (head[..4] == MARK && (STAMP_BYTES + 1..=RECORD_BYTES).contains(&length)).then_some(length)
}

/// The record that begins here, if it is whole and as it was written.
fn record(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    let checked = bytes.get(HEAD_BYTES..)?.get(..length(bytes)?)?;
    let check = bytes.get(8..HEAD_BYTES)?;
    if crc32fast::hash(checked).to_le_bytes() != *check {
        return None;
    }
    let (wall, rest) = checked.split_first_chunk()?;
    let (term, rest) = rest.split_first_chunk()?;
    let (slot, rest) = rest.split_first()?;
    let (sequence, body) = rest.split_first_chunk()?;
    let stamp = Stamp {
        wall: u64::from_le_bytes(*wall),
        stream: Stream {
            term: u32::from_le_bytes(*term),
            slot: *slot,
        },
        sequence: u64::from_le_bytes(*sequence),
    };
    Some((stamp, body))
}
