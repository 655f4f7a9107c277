//! In tests: somebody is told of each change of the disk before it is made, and may make it fail.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// What is about to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step<'a> {
    /// To the file with this number.
    Append(u64, &'a [u8]),
    /// Of the file with this number.
    Sync(u64),
    /// A file is made, renamed or removed.
    Names,
    /// The folder is made lasting.
    SyncNames,
}

pub(super) type Watcher = Box<dyn FnMut(Step<'_>) -> io::Result<()>>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// From now on this is told of what the present thread does.
pub(super) fn watch(watcher: impl FnMut(Step<'_>) -> io::Result<()> + 'static) {
    WATCHER.set(Some(Box::new(watcher)));
}

/// Who has been told until now.
pub(super) fn take() -> Option<Watcher> {
    WATCHER.take()
}

pub(super) fn unwatch() {
    WATCHER.set(None);
}

fn tell(step: Step<'_>) -> io::Result<()> {
    // Whoever looks on may use the disk, unseen.
    let Some(mut watcher) = WATCHER.take() else {
        return Ok(());
    };
    let outcome = watcher(step);
    WATCHER.set(Some(watcher));
    outcome
}

fn number(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.ino())
}

pub(super) fn append(file: &File, bytes: &[u8]) -> io::Result<()> {
    tell(Step::Append(number(file), bytes))
}

pub(super) fn sync(file: &File) -> io::Result<()> {
    tell(Step::Sync(number(file)))
}

pub(super) fn names() -> io::Result<()> {
    tell(Step::Names)
}

pub(super) fn names_sync() -> io::Result<()> {
    tell(Step::SyncNames)
}
