//! How a client's connections are secured: from options and the environment to a connector.

use super::options::{Environment, flag};
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
    pub(super) fn connector(
        mut self,
        environment: Environment<'_>,
    ) -> Result<Option<Connector>, Error> {
        if self.wanted == Some(false) {
            return match self.given() {
                None => Ok(None),
                Some(name) => Err(Error::argument(format!(
                    "{name} is given, but tls is off; leave one of the two away"
                ))),
            };
        }
        self.complete(environment)?;
        if self.wanted != Some(true) && self.given().is_none() {
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
    fn complete(&mut self, environment: Environment<'_>) -> Result<(), Error> {
        if self.wanted.is_none() {
            // `false` there is as good as nothing: what names a file asks for TLS.
            self.wanted = flag(environment, "FAIRLOCK_TLS")?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn connector(wanted: Option<bool>, variable: &str) -> Result<Option<Connector>, Error> {
        let options = TlsOptions {
            wanted,
            ..TlsOptions::default()
        };
        let variable = variable.to_owned();
        options.connector(&|name| Ok((name == "FAIRLOCK_TLS").then(|| variable.clone())))
    }

    /// Where the system names no CA that it trusts, a client that asks for TLS cannot be made.
    fn asks_for_tls(wanted: Option<bool>, variable: &str) -> bool {
        match connector(wanted, variable) {
            Ok(connector) => connector.is_some(),
            Err(error) => error.to_string().starts_with("TLS: "),
        }
    }

    #[test]
    fn tls_can_be_asked_for_by_the_environment_and_the_option_comes_first() {
        assert!(asks_for_tls(None, "true"));
        assert!(!asks_for_tls(None, "false"));
        assert!(!asks_for_tls(Some(false), "true"));
        assert!(asks_for_tls(Some(true), "false"));
        assert!(asks_for_tls(Some(true), "yes"));
        let error = connector(None, "yes").expect_err("neither true nor false");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        assert!(
            error.to_string().contains("FAIRLOCK_TLS is \"yes\""),
            "{error}"
        );
    }
}
