//! Why something cannot be secured.

#[cfg(any(feature = "tls", feature = "server"))]
use std::path::Path;
use std::path::PathBuf;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl FileError {
    #[cfg(any(feature = "tls", feature = "server"))]
    pub(super) fn new(path: &Path, problem: impl Into<String>) -> FileError {
        FileError {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Why there can be no connector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system cannot help out.
    #[error("{0}")]
    System(String),
}
