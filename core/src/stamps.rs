//! What files looked like when they were read, so that another look tells whether they have changed.
//! Reads nothing of what is in them.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What files looked like when they were read: another look tells whether they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamps(Vec<Option<[i64; 7]>>);

impl Stamps {
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Stamps {
        let stamps = files.into_iter().map(|path| fs::metadata(path).ok());
        Stamps(stamps.map(|metadata| metadata.map(|m| stamp(&m))).collect())
    }
}

fn stamp(metadata: &Metadata) -> [i64; 7] {
    [
        metadata.dev() as i64,
        metadata.ino() as i64,
        metadata.len() as i64,
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ]
}
