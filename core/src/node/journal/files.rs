//! The files of a journal, and what is done to them away from the node's thread: what may wait for a disk.

#[cfg(test)]
use super::fake_disk as seen;
use crate::node::data_dir::DataDir;
use crate::node::log::now_and_then;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The journal that was whole last.
pub(super) const NAME: &str = "journal";
/// One that has been begun since: the first of these names, unless it is just being renamed.
pub(super) const NEW_NAMES: [&str; 2] = ["journal.new", "journal.newer"];

/// In tests, somebody looks on before each change of the disk, and may make it fail.
#[cfg(not(test))]
mod seen {
    use std::fs::File;
    use std::io;

    #[inline]
    pub(super) fn append(_: &File, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    pub(super) fn sync(_: &File) -> io::Result<()> {
        Ok(())
    }
    pub(super) fn names() -> io::Result<()> {
        Ok(())
    }
    pub(super) fn names_sync() -> io::Result<()> {
        Ok(())
    }
}

/// A file that records are appended to.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: Arc<File>,
    pub(super) length: u64,
    /// What it was called when it was made.
    pub(super) name: &'static str,
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
            name: NAME,
        })
    }

    /// A new one, which nobody believes before it is whole.
    pub(super) fn begin(dir: &DataDir, name: &'static str, header: &[u8]) -> io::Result<Log> {
        seen::names()?;
        let file = File::create(dir.file(name))?;
        let mut log = Log {
            file: Arc::new(file),
            length: 0,
            name,
        };
        log.append(header)?;
        Ok(log)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        seen::append(&self.file, bytes)?;
        (&*self.file).write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        sync(&self.file)
    }
}

/// Takes a file away, because it must not be believed, or is of no use.
pub(super) fn remove(dir: &DataDir, name: &str) -> io::Result<()> {
    seen::names()?;
    match fs::remove_file(dir.file(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn sync(file: &File) -> io::Result<()> {
    seen::sync(file)?;
    file.sync_data()
}

/// Makes what the folder's names stand for lasting.
pub(super) fn sync_names(dir: &DataDir) -> io::Result<()> {
    seen::names_sync()?;
    dir.sync()
}

/// Gives a whole new journal the name of the one before, once it is lasting; what is lasting then is the
/// name, too.
pub(super) fn install(file: &File, dir: &DataDir, name: &str) -> io::Result<()> {
    sync(file)?;
    rename(dir, name)?;
    sync_names(dir)
}

fn rename(dir: &DataDir, name: &str) -> io::Result<()> {
    seen::names()?;
    fs::rename(dir.file(name), dir.file(NAME))
}

/// Something that may take as long as the disk likes.
#[derive(Debug)]
pub(crate) enum Work {
    /// Make lasting what has been written, up to the write with this number.
    Sync { file: Arc<File>, write: u64 },
    /// Make a new journal lasting, up to the write with this number, and let it take the place of the one
    /// before, unless it is called off.
    Install {
        file: Arc<File>,
        dir: Arc<DataDir>,
        name: &'static str,
        write: u64,
        renaming: Renaming,
    },
    /// Make lasting that a name has been taken away.
    SyncNames { dir: Arc<DataDir> },
    /// Let go of a file that has no name any more, which for a long one takes a while.
    Discard { file: Arc<File> },
}

/// How that went.
#[derive(Debug)]
pub(crate) enum Done {
    Synced {
        file: Arc<File>,
        write: u64,
        result: io::Result<()>,
    },
    Installed {
        renaming: Renaming,
        write: u64,
        result: io::Result<()>,
    },
    Other,
}

/// Whether a new journal has got its name: asked and called off by the node's thread while another one is
/// about to do it. Neither waits for the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renaming(Arc<AtomicU8>);

const NOT_YET: u8 = 0;
const CALLED_OFF: u8 = 1;
const UNDER_WAY: u8 = 2;
const DONE: u8 = 3;

/// How far it had come when it was called off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CalledOff {
    /// It will not happen.
    InTime,
    /// It is happening.
    UnderWay,
    /// It has happened.
    TooLate,
}

impl Renaming {
    /// It should not happen any more.
    pub(super) fn call_off(&self) -> CalledOff {
        match self.go_on(NOT_YET, CALLED_OFF) {
            Ok(_) | Err(CALLED_OFF) => CalledOff::InTime,
            Err(UNDER_WAY) => CalledOff::UnderWay,
            Err(_) => CalledOff::TooLate,
        }
    }

    /// Whether it has happened.
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }

    pub(super) fn is(&self, other: &Renaming) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it is to be done.
    pub(super) fn begin(&self) -> bool {
        self.go_on(NOT_YET, UNDER_WAY).is_ok()
    }

    pub(super) fn end(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    fn go_on(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn carry_out(&self, dir: &DataDir, name: &str) -> io::Result<()> {
        if self.begin() {
            rename(dir, name)?;
            self.end();
        }
        Ok(())
    }
}

impl Work {
    /// Does it; blocks.
    pub(crate) fn run(self) -> Done {
        match self {
            Work::Sync { file, write } => Done::Synced {
                result: sync(&file),
                file,
                write,
            },
            Work::Install {
                file,
                dir,
                name,
                write,
                renaming,
            } => {
                let installed = sync(&file)
                    .and_then(|()| renaming.carry_out(&dir, name))
                    .and_then(|()| sync_names(&dir));
                Done::Installed {
                    renaming,
                    write,
                    result: installed,
                }
            }
            Work::SyncNames { dir } => {
                if let Err(error) = sync_names(&dir) {
                    now_and_then!(
                        warn,
                        "cannot make it lasting that a journal is gone: {error}"
                    );
                }
                Done::Other
            }
            Work::Discard { file } => {
                drop(file);
                Done::Other
            }
        }
    }
}
