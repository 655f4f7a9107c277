//! How a client's connections are secured: from options and the environment to a connector.

use super::options::environment;
use crate::error::Error;
use crate::tls::{ClientFiles, Connector, server_name};
use std::path::PathBuf;

/// What was given; the environment fills in what was not.
#[derive(Clone, Default)]
pub(super) struct TlsOptions {
    pub(super) wanted: Option<bool>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) cert_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) server_name: Option<String>,
}

impl TlsOptions {
    /// Reads the files; `None` where there is to be no TLS.
    pub(super) fn connector(mut self) -> Result<Option<Connector>, Error> {
        if self.wanted == Some(false) {
            return match self.given() {
                None => Ok(None),
                Some(name) => Err(Error::argument(format!(
                    "{name} is given, but tls is off; leave one of the two away"
                ))),
            };
        }
        self.complete()?;
        if self.wanted.is_none() && self.given().is_none() {
            return Ok(None);
        }
        let identity = match (self.cert_file, self.key_file) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(missing("cert_file", "key_file")),
            (None, Some(_)) => return Err(missing("key_file", "cert_file")),
        };
        let files = ClientFiles {
            authorities: self.ca_file,
            identity,
        };
        let name = self.server_name.as_deref().map(server_name).transpose();
        let name = name.map_err(Error::argument)?;
        let connector = Connector::new(files, name);
        connector
            .map(Some)
            .map_err(|error| Error::argument(format!("TLS: {error}")))
    }

    /// Takes from the environment what was not given.
    fn complete(&mut self) -> Result<(), Error> {
        let path = |name| environment(name).map(|path| path.map(PathBuf::from));
        if self.ca_file.is_none() {
            self.ca_file = path("FAIRLOCK_CA_FILE")?;
        }
        if self.cert_file.is_none() && self.key_file.is_none() {
            self.cert_file = path("FAIRLOCK_CERT_FILE")?;
            self.key_file = path("FAIRLOCK_KEY_FILE")?;
        }
        if self.server_name.is_none() {
            self.server_name = environment("FAIRLOCK_SERVER_NAME")?;
        }
        Ok(())
    }

    /// The name of an option that was given, if one was.
    fn given(&self) -> Option<&'static str> {
        [
            ("ca_file", self.ca_file.is_some()),
            ("cert_file", self.cert_file.is_some()),
            ("key_file", self.key_file.is_some()),
            ("server_name", self.server_name.is_some()),
        ]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    }
}

fn missing(given: &str, missing: &str) -> Error {
    Error::argument(format!(
        "{given} is given without {missing}; a certificate and its key go together"
    ))
}
