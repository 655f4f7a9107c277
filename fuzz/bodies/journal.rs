//! What holds for the reader of journals whatever bytes it finds: it does no more than refuse them, and what it makes
//! of them is a part from their beginning on. Run by the fuzzer over bytes of its own making, and by the ordinary
//! tests over the kept ones and over damaged ones.

use fairlock::engine::{Change, Engine, EngineSettings, Time};
use fairlock::node::journal::{Recovered, recover};

/// Whose the journals are here.
const OWNER: &str = "a node without peers";

/// Reads `data` as a whole journal, and as the frames of one whose check sums are right.
pub(crate) fn check(data: &[u8]) {
    check_file(data);
    check_file(&journal_of(data));
}

/// Whatever comes of it, a part of the file from its beginning on leads to the same, and nothing is left over.
/// Returns how much of it was good, if it was believed.
pub(crate) fn check_file(file: &[u8]) -> Option<u64> {
    let (found, state) = read(file)?;
    assert_eq!(found.length + found.cut, file.len() as u64);
    let (again, same) = read(&file[..found.length as usize]).expect("it was good");
    assert_eq!((again.length, again.cut), (found.length, 0));
    assert_eq!((again.copy, same), (found.copy, state));
    Some(found.length)
}

fn read(file: &[u8]) -> Option<(Recovered, Vec<Change>)> {
    let mut engine = Engine::new(EngineSettings::default(), 1);
    let present = (Time(1 << 50), 1 << 50);
    let found = recover(file, OWNER, present, &mut engine).ok()?;
    Some((found, engine.snapshot().collect()))
}

/// A journal with these frames: each is a length in two bytes, and so many bytes.
fn journal_of(mut data: &[u8]) -> Vec<u8> {
    let mut header = format!("fairlock journal, version 1\nnode {OWNER}\n");
    header += &format!("check {:08x}\n", crc32fast::hash(header.as_bytes()));
    let mut journal = header.into_bytes();
    while let Some((length, rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (body, rest) = rest.split_at(length);
        // The moment, the stream and the number of the change.
        let checked = [&[0; 21], body].concat();
        journal.extend_from_slice(&[0xFA, 0x1C, 0x10, 0xC5]);
        journal.extend_from_slice(&(checked.len() as u32).to_le_bytes());
        journal.extend_from_slice(&crc32fast::hash(&checked).to_le_bytes());
        journal.extend_from_slice(&checked);
        data = rest;
    }
    journal
}
