//! Connections that this side opens: whom it trusts, what it shows of itself, whom it expects.

use super::Channel;
use super::error::ConnectorError;
use super::file_names::ClientFiles;
use super::files::{Shown, authorities, identity, provider, system_authorities};
use crate::stamps::Stamps;
use rustls::ClientConfig;
use rustls::client::{ClientConnection, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

impl ClientFiles {
    fn load(&self) -> Result<Arc<ClientConfig>, ConnectorError> {
        let roots = match &self.authorities {
            Some(path) => authorities(path)?,
            None => system_authorities().map_err(ConnectorError::System)?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| ConnectorError::System(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some((certificate, key)) => {
                let identity = identity(certificate, key, Shown::ToServers)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn stamps(&self) -> Stamps {
        let identity = self.identity.iter();
        let identity = identity.flat_map(|(certificate, key)| [certificate, key]);
        Stamps::of(self.authorities.iter().chain(identity))
    }
}

/// Opens channels, with the files as they are at that moment.
#[derive(Debug)]
pub struct Connector {
    files: ClientFiles,
    server_name: Option<ServerName<'static>>,
    first: Loaded,
    loaded: Mutex<Loaded>,
}

/// What was loaded is replaced as a whole, so a panic leaves nothing half done.
impl UnwindSafe for Connector {}
impl RefUnwindSafe for Connector {}

#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ClientConfig>,
    stamps: Stamps,
    /// Why the files as they are now are not used.
    complaint: Option<ConnectorError>,
}

impl Connector {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be used, or the system trusts no CA.
    pub fn new(
        files: ClientFiles,
        server_name: Option<ServerName<'static>>,
    ) -> Result<Connector, ConnectorError> {
        let stamps = files.stamps();
        let first = Loaded {
            config: files.load()?,
            stamps,
            complaint: None,
        };
        Ok(Connector {
            files,
            server_name,
            loaded: Mutex::new(first.clone()),
            first,
        })
    }

    /// Begins a channel to a server at `address`, `host:port`, whose certificate has to be for that host unless a name was given.
    ///
    /// # Errors
    /// The host can stand in no certificate.
    pub fn channel(&self, address: &str) -> Result<Channel, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name_of(address)?,
        };
        ClientConnection::new(self.config(), name)
            .map(Channel::new)
            .map_err(|error| error.to_string())
    }

    /// Why the files as they are now are not used, if so: those that were read before are.
    pub fn complaint(&self) -> Option<String> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.complaint.as_ref().map(ToString::to_string)
    }

    /// One with a lock of its own, for a forked child: this one may have been locked at the fork.
    #[must_use]
    pub fn for_this_process(&self) -> Connector {
        Connector {
            files: self.files.clone(),
            server_name: self.server_name.clone(),
            first: self.first.clone(),
            loaded: Mutex::new(self.first.clone()),
        }
    }

    fn config(&self) -> Arc<ClientConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read, so that a change meanwhile is seen the next time.
        let stamps = self.files.stamps();
        if stamps != loaded.stamps {
            loaded.stamps = stamps;
            match self.files.load() {
                Ok(config) => {
                    loaded.config = config;
                    loaded.complaint = None;
                }
                Err(error) => loaded.complaint = Some(error),
            }
        }
        loaded.config.clone()
    }
}

/// The name in a certificate that the host of an address stands for.
fn name_of(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    server_name(bare)
}

/// A name as it stands in certificates: of a host, or an IP address.
///
/// # Errors
/// It is none.
pub fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| format!("{text:?} is no name that a certificate can be for (server_name)"))
}
