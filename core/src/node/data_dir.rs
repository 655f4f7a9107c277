//! The folder a node keeps its files in: made if it is missing, and held by one node at a time.
//!
//! The hold is an advisory lock of the operating system on the file `lock`, so it ends with the process,
//! however that ends. The file also says which process holds it, for the error of the one that comes second.

use super::error::ServerError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The folder, held until this is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the folder if it is missing and takes it.
    pub(crate) fn open(path: &Path) -> Result<DataDir, ServerError> {
        let failed = |source| ServerError::DataDir {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(path).map_err(failed)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(ServerError::DataDirInUse {
                    path: path.to_owned(),
                    holder: holder(&mut lock),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        note_holder(&mut lock).map_err(failed)?;
        Ok(DataDir {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the names in the folder as lasting as the files.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// The process that holds the folder, as far as it has said so.
fn holder(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn note_holder(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}
