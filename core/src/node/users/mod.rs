//! Users: who may say hello here, and what each of them may do with which keys.
//!
//! ```text
//! users.toml ──▶ file ──▶ Users ──▶ admission ──▶ the user of a connection ──▶ permission
//!                watch ────┘          └─▶ hash, on other threads
//! ```
//!
//! A client says `name:secret` where it would say the server's secret. Nothing here keeps, logs or shows a secret that a
//! client has said, and who may do everything is not looked at again after its hello.

mod admission;
mod file;
mod hash;
mod permission;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use admission::{Admission, start_lanes};
pub use hash::hash_secret;
pub(crate) use watch::watch;

use super::error::ServerError;
use super::settings::Secret;
use crate::protocol::{Key, KeyRef};
use crate::stamps::Stamps;
use admission::Checks;
use hash::{Digest, Digests, Hash};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a user may do with the keys that its entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Take, keep and release locks of its own.
    Lock,
    /// See who holds a key, and who waits for it.
    Inspect,
    /// See which keys are held.
    List,
    /// Release and keep locks that another client holds.
    ReleaseOthers,
}

impl Right {
    const ALL: [Right; 4] = [
        Right::Lock,
        Right::Inspect,
        Right::List,
        Right::ReleaseOthers,
    ];

    /// The word in the file.
    const fn word(self) -> &'static str {
        match self {
            Right::Lock => "lock",
            Right::Inspect => "inspect",
            Right::List => "list",
            Right::ReleaseOthers => "release_others",
        }
    }
}

/// Some of the rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rights(u8);

impl Rights {
    fn add(&mut self, right: Right) {
        self.0 |= 1 << right as u8;
    }

    fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    fn is_all(self) -> bool {
        Right::ALL.into_iter().all(|right| self.has(right))
    }
}

/// How a user proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Proof {
    Secret(Secret),
    Hash(Arc<Hash>),
}

/// A user, as its entry in the file says.
#[derive(Debug)]
pub(crate) struct User {
    name: String,
    proof: Proof,
    /// What the spellings of its keys begin with. Escapes are whole units, so the spelling of a prefix is the prefix of the
    /// spelling, and no key has to be decoded to be compared.
    prefixes: Box<[Key]>,
    /// Whether the prefixes have no say.
    every_key: bool,
    rights: Rights,
    /// Set when the file does not say so any more.
    retired: AtomicBool,
}

impl User {
    /// Whether nothing that this user asks for has to be looked at.
    pub(crate) fn may_everything(&self) -> bool {
        self.every_key && self.rights.is_all()
    }

    /// Whether it has this right on a key.
    pub(crate) fn may(&self, right: Right, key: KeyRef<'_>) -> bool {
        self.rights.has(right) && self.knows(key)
    }

    /// Whether the key is among its keys.
    pub(crate) fn knows(&self, key: KeyRef<'_>) -> bool {
        let spelling = key.spelling();
        let mut prefixes = self.prefixes.iter();
        self.every_key || prefixes.any(|prefix| spelling.starts_with(prefix.spelling()))
    }

    /// Whether the file does not name it any more, or not so.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    fn is_same(&self, other: &User) -> bool {
        self.name == other.name
            && self.proof == other.proof
            && self.prefixes == other.prefixes
            && self.every_key == other.every_key
            && self.rights == other.rights
    }
}

/// The users that the file names, and those that are on their way in.
pub(crate) struct Users {
    all: HashMap<String, Arc<User>>,
    /// Who is known by what was said: all whose secrets stand in the file, and those that have been checked against a
    /// hash. Digests with a key that nobody knows, so that the time of a look-up says nothing about a secret.
    known: HashMap<Digest, Arc<User>>,
    digests: Digests,
    /// What secrets are hashed against that belong to nobody, so that an unknown name takes as long as a known one; none
    /// where no user has a hash.
    decoy: Option<Arc<Hash>>,
    /// Counts the times that the file was read.
    edition: u64,
    pub(crate) checks: Checks,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("count", &self.all.len())
            .finish_non_exhaustive()
    }
}

impl Users {
    fn new(entries: Vec<User>) -> io::Result<Users> {
        let mut users = Users {
            all: HashMap::new(),
            known: HashMap::new(),
            digests: Digests::new()?,
            decoy: None,
            edition: 0,
            checks: Checks::default(),
        };
        users.replace(entries);
        Ok(users)
    }

    /// Takes what the file says now. Who is not as before is retired; who still proves itself in the same way is known
    /// as before.
    fn replace(&mut self, entries: Vec<User>) {
        let mut before = std::mem::take(&mut self.all);
        let mut known_before = HashMap::new();
        for (digest, user) in self.known.drain() {
            known_before.insert(user.name.clone(), digest);
        }
        self.edition += 1;
        self.decoy = None;
        let mut all = HashMap::new();
        for entry in entries {
            let old = before.remove(&entry.name);
            let proven = old.as_ref().is_some_and(|old| old.proof == entry.proof);
            let user = match old {
                Some(old) if old.is_same(&entry) => old,
                old => {
                    old.inspect(|old| old.retire());
                    Arc::new(entry)
                }
            };
            match &user.proof {
                Proof::Secret(secret) => {
                    let said = [user.name.as_bytes(), b":", secret.bytes()];
                    self.known.insert(self.digests.of(&said), user.clone());
                }
                Proof::Hash(hash) => {
                    self.decoy.get_or_insert_with(|| hash.clone());
                    if proven && let Some(digest) = known_before.get(&user.name) {
                        self.known.insert(*digest, user.clone());
                    }
                }
            }
            all.insert(user.name.clone(), user);
        }
        before.values().for_each(|gone| gone.retire());
        self.all = all;
    }

    /// Who a user is by now that said hello under an older file; nobody if its hello would not be enough any more.
    fn present(&self, old: &User) -> Option<Arc<User>> {
        let user = self.all.get(&old.name)?;
        (user.proof == old.proof).then(|| user.clone())
    }
}

/// Where the users come from.
#[derive(Debug)]
pub(crate) struct UsersFile {
    path: PathBuf,
    stamps: Stamps,
}

impl UsersFile {
    /// Reads the file for the first time.
    pub(crate) fn open(
        path: PathBuf,
        server: Option<&Secret>,
    ) -> Result<(UsersFile, Users), ServerError> {
        // Before it is read, so that a change meanwhile is seen the next time.
        let stamps = Stamps::of([&path]);
        let users = Users::new(file::read(&path, server)?)?;
        Ok((UsersFile { path, stamps }, users))
    }
}
