//! Why a node cannot start, or had to end: each a sentence that names what is wrong and what to do.

use super::settings::SettingError;
use crate::tls::{ConnectorError, FileError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a node cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A setting is wrong by itself or beside the others.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The address is taken by another process.
    #[error(
        "cannot listen on {address}: the address is in use; stop the other process or set `listen` to another one"
    )]
    AddressInUse {
        /// What was to be listened on.
        address: SocketAddr,
    },
    /// What is to be listened on is a name that the system cannot find the address of, perhaps only for now.
    #[error("cannot find the address of {address} (`{setting}`): {source}")]
    LookUp {
        /// The setting that names it.
        setting: &'static str,
        /// What was asked for.
        address: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The address cannot be listened on for another reason.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was to be listened on.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The data dir cannot be made, read or written.
    #[error("data dir {}: {source}", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another node runs on the data dir.
    #[error("data dir {} is in use by {}; each node needs a `data_dir` of its own", path.display(), holder_text(*holder))]
    DataDirInUse {
        /// The folder.
        path: PathBuf,
        /// The process that holds it, if it has said so.
        holder: Option<u32>,
    },
    /// The term file is there and cannot be trusted.
    #[error(
        "term file {}: {problem}; fencing tokens rise only with it, so put the file back as it was, \
         or delete it if no resource remembers a token of this node",
        path.display()
    )]
    TermFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The journal is there and cannot be used.
    #[error(
        "journal {}: {problem}; nothing was changed: move the file away to start without the locks in it, or put it back as it was",
        path.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The file with the secret cannot be used.
    #[error("secret file {}: {problem}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The users file cannot be used.
    #[error("users file {}{}: {problem}", path.display(), line_text(*line))]
    UsersFile {
        /// The file.
        path: PathBuf,
        /// Where in it.
        line: Option<usize>,
        /// What is wrong with it.
        problem: String,
    },
    /// A file with certificates or a key cannot be used.
    #[error("TLS file {}: {problem}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// All terms are used up, which takes a wrong clock or a wrong term file.
    #[error(
        "no term is left after {last}; is the term file of another machine, or the clock wrong?"
    )]
    TermsUsedUp {
        /// The greatest term that the node knows of.
        last: u32,
    },
    /// The operating system refused something that no setting changes.
    #[error("cannot run: {0}")]
    System(#[from] io::Error),
    /// The node runs in the process that this one was forked from.
    #[error(
        "this node runs in the process that this one was forked from; only that process can stop it"
    )]
    Forked,
    /// A bug: the node stopped itself rather than go on with a state it cannot trust.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<ConnectorError> for ServerError {
    fn from(error: ConnectorError) -> ServerError {
        match error {
            ConnectorError::File(error) => error.into(),
            ConnectorError::System(text) => ServerError::System(io::Error::other(text)),
        }
    }
}

impl From<FileError> for ServerError {
    fn from(error: FileError) -> ServerError {
        ServerError::TlsFile {
            path: error.path,
            problem: error.problem,
        }
    }
}

fn holder_text(holder: Option<u32>) -> String {
    holder.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

fn line_text(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}
