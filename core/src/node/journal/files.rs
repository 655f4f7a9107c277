//! The files of a journal, and what is done to them away from the node's thread: what may wait for a disk.

use crate::node::data_dir::DataDir;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

/// The journal that a start believes.
pub(super) const NAME: &str = "journal";
/// One that is being begun.
const NEW_NAME: &str = "journal.new";

/// A file that records are appended to.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: Arc<File>,
    pub(super) length: u64,
}

impl Log {
    /// Goes on with the journal that is there; what is behind its good part goes.
    pub(super) fn resume(dir: &DataDir, length: u64) -> io::Result<Log> {
        let mut file = OpenOptions::new().write(true).open(dir.file(NAME))?;
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(Log {
            file: Arc::new(file),
            length,
        })
    }

    /// A new one, which nobody believes yet.
    pub(super) fn begin(dir: &DataDir, header: &[u8]) -> io::Result<Log> {
        let file = File::create(dir.file(NEW_NAME))?;
        let mut log = Log {
            file: Arc::new(file),
            length: 0,
        };
        log.append(header)?;
        Ok(log)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// Nobody shall believe the journal any more, nor look at one that was begun.
pub(super) fn remove_journal(dir: &DataDir) -> io::Result<()> {
    remove(dir, NAME)
}

/// What was begun comes to nothing.
pub(super) fn remove_new(dir: &DataDir) -> io::Result<()> {
    remove(dir, NEW_NAME)
}

fn remove(dir: &DataDir, name: &str) -> io::Result<()> {
    match fs::remove_file(dir.file(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Something that may take as long as the disk likes.
#[derive(Debug)]
pub(crate) enum Work {
    /// Make lasting what has been written, up to the write with this number.
    Sync { file: Arc<File>, write: u64 },
    /// Make a new journal lasting, and let it take the place of the one before.
    Install { file: Arc<File>, dir: Arc<DataDir> },
    /// Let go of one that has no name any more, which for a long one takes a while.
    Discard { file: Arc<File> },
}

/// How that went.
#[derive(Debug)]
pub(crate) enum Done {
    Synced { write: u64, result: io::Result<()> },
    Installed(io::Result<()>),
    Discarded,
}

impl Work {
    /// Does it; blocks.
    pub(crate) fn run(self) -> Done {
        match self {
            Work::Sync { file, write } => Done::Synced {
                write,
                result: file.sync_data(),
            },
            Work::Install { file, dir } => Done::Installed(install(&file, &dir)),
            Work::Discard { file } => {
                drop(file);
                Done::Discarded
            }
        }
    }
}

pub(super) fn install(file: &File, dir: &DataDir) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(dir.file(NEW_NAME), dir.file(NAME))?;
    if let Err(error) = dir.sync() {
        tracing::warn!("cannot make the name of a new journal lasting: {error}");
    }
    Ok(())
}
