//! Which files secure a connection.

use std::path::PathBuf;

/// The files of a side that opens connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The CAs whose certificates are accepted; without it those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// The certificate that is shown where one is asked for, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

#[cfg(feature = "server")]
/// The files of a side that takes connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) clients: Option<Clients>,
}

#[cfg(feature = "server")]
/// The clients that may show a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clients {
    /// Who has to have signed it.
    pub(crate) authorities: PathBuf,
    /// Those without one are turned away.
    pub(crate) required: bool,
}
