//! The files of a journal, and what is done to them away from the node's thread: what may wait for a disk.

#[cfg(test)]
use super::fake_disk as seen;
use crate::node::data_dir::DataDir;
use crate::node::log::now_and_then;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The journal that was whole last.
pub(super) const NAME: &str = "journal";
/// One that has been begun since.
pub(super) const NEW_NAME: &str = "journal.new";

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

    /// A new one, which nobody believes before it is whole.
    pub(super) fn begin(dir: &DataDir, header: &[u8]) -> io::Result<Log> {
        seen::names()?;
        let file = File::create(dir.file(NEW_NAME))?;
        let mut log = Log {
            file: Arc::new(file),
            length: 0,
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

/// Takes the file called `journal` away, because it must not be believed any more.
pub(super) fn remove_journal(dir: &DataDir) -> io::Result<()> {
    remove(dir, NAME)
}

/// Takes what was begun away.
pub(super) fn remove_new(dir: &DataDir) -> io::Result<()> {
    remove(dir, NEW_NAME)
}

fn remove(dir: &DataDir, name: &str) -> io::Result<()> {
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
pub(super) fn install(file: &File, dir: &DataDir) -> io::Result<()> {
    sync(file)?;
    rename(dir)?;
    sync_names(dir)
}

fn rename(dir: &DataDir) -> io::Result<()> {
    seen::names()?;
    fs::rename(dir.file(NEW_NAME), dir.file(NAME))
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
/// about to do it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renaming(Arc<Mutex<Renamed>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Renamed {
    #[default]
    NotYet,
    CalledOff,
    Done,
}

impl Renaming {
    /// It must not happen any more. Returns whether it has happened.
    pub(super) fn call_off(&self) -> bool {
        let mut state = self.state();
        if *state == Renamed::NotYet {
            *state = Renamed::CalledOff;
        }
        *state == Renamed::Done
    }

    /// Whether it has happened.
    pub(super) fn is_done(&self) -> bool {
        *self.state() == Renamed::Done
    }

    pub(super) fn is(&self, other: &Renaming) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, Renamed> {
        // One word, which is right whoever panicked meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out(&self, dir: &DataDir) -> io::Result<()> {
        let mut state = self.state();
        if *state == Renamed::NotYet {
            rename(dir)?;
            *state = Renamed::Done;
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
                write,
                renaming,
            } => {
                let installed = sync(&file)
                    .and_then(|()| renaming.carry_out(&dir))
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
