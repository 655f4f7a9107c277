//! Connections that others open to this side: what it shows, and whether they have to show something too.

use super::Channel;
use super::error::FileError;
use super::file_names::ServerFiles;
use super::files::{Shown, authorities, end_of, identity, provider};
use crate::stamps::Stamps;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ServerConnection, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

impl ServerFiles {
    fn load(&self) -> Result<(Arc<ServerConfig>, Option<u64>), FileError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| FileError::new(&self.certificate, error.to_string()))?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let roots = Arc::new(authorities(&clients.authorities)?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                if !clients.required {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier
                        .map_err(|error| FileError::new(&clients.authorities, error.to_string()))?,
                )
            }
        };
        let identity = identity(&self.certificate, &self.key, Shown::ToClients)?;
        let ends = identity.cert.first().and_then(end_of);
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((Arc::new(config), ends))
    }

    fn stamps(&self) -> Stamps {
        let authorities = self.clients.iter().map(|clients| &clients.authorities);
        Stamps::of(
            [&self.certificate, &self.key]
                .into_iter()
                .chain(authorities),
        )
    }
}

/// Opens channels with the files that were read last.
#[derive(Debug)]
pub(crate) struct Acceptor {
    files: ServerFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// When the certificate ends, in seconds since 1970.
    ends: Option<u64>,
    stamps: Stamps,
}

impl Acceptor {
    /// Reads the files.
    pub(crate) fn new(files: ServerFiles) -> Result<Acceptor, FileError> {
        let stamps = files.stamps();
        let (config, ends) = files.load()?;
        Ok(Acceptor {
            files,
            loaded: Mutex::new(Loaded {
                config,
                ends,
                stamps,
            }),
        })
    }

    /// Begins a channel to a client.
    pub(crate) fn channel(&self) -> Result<Channel, String> {
        ServerConnection::new(self.lock().config.clone())
            .map(Channel::new)
            .map_err(|error| error.to_string())
    }

    /// Reads the files again if they have changed, or in any case if told so. Connections that are open stay as they
    /// are. Whether new files are used now; those that cannot be used are told once, and the old ones stay.
    pub(crate) fn reload(&self, in_any_case: bool) -> Result<bool, FileError> {
        // Before they are read, so that a change meanwhile is seen the next time.
        let stamps = self.files.stamps();
        if stamps == self.lock().stamps && !in_any_case {
            return Ok(false);
        }
        self.lock().stamps = stamps;
        let (config, ends) = self.files.load()?;
        let mut loaded = self.lock();
        loaded.config = config;
        loaded.ends = ends;
        Ok(true)
    }

    /// When the certificate that is shown ends, in seconds since 1970.
    pub(crate) fn certificate_ends(&self) -> Option<u64> {
        self.lock().ends
    }

    /// The node's thread asks too, so nothing is read under this lock.
    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
