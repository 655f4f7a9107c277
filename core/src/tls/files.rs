//! Certificates and keys from PEM files. What cannot be used is an error that names the file and says why.

use super::error::FileError;
use super::explain::certificate;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Whom a certificate is shown to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    #[cfg_attr(not(feature = "server"), allow(dead_code))]
    ToClients,
    ToServers,
}

/// Longer files are something else.
const LONGEST: u64 = 4 << 20;

/// Made anew each time, so that nothing of it stays in use when the process ends.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let wrong = |error: std::io::Error| FileError::new(path, error.to_string());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(wrong)?;
    if bytes.len() as u64 > LONGEST {
        return Err(FileError::new(path, "it is too long for a PEM file"));
    }
    Ok(bytes)
}

fn not_pem(path: &Path, error: &pem::Error) -> FileError {
    FileError::new(path, format!("it is no PEM file: {error}"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let bytes = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| not_pem(path, &error))?;
    if certificates.is_empty() {
        return Err(FileError::new(
            path,
            "there is no certificate in it (-----BEGIN CERTIFICATE-----)",
        ));
    }
    for certificate in &certificates {
        ParsedCertificate::try_from(certificate)
            .map_err(|_| FileError::new(path, "a certificate in it is broken"))?;
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let bytes = read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound if memchr::memmem::find(&bytes, b"ENCRYPTED").is_some() => {
            FileError::new(path, "the key is encrypted; give it without a passphrase")
        }
        pem::Error::NoItemsFound => FileError::new(
            path,
            "there is no private key in it (-----BEGIN PRIVATE KEY-----)",
        ),
        error => not_pem(path, &error),
    })
}

/// The CAs in a file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| FileError::new(path, format!("a certificate in it: {error}")))?;
    }
    Ok(roots)
}

/// The CAs that the system trusts.
pub(super) fn system_authorities() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken > 0 {
        return Ok(roots);
    }
    let why = found.errors.first().map_or_else(
        || "none was found".to_owned(),
        std::string::ToString::to_string,
    );
    Err(format!(
        "the system names no CA that it trusts ({why}); give a ca_file"
    ))
}

/// A certificate (with those that lead to its CA) and its key, if they can be shown now.
pub(super) fn identity(
    certificate: &Path,
    key: &Path,
    shown: Shown,
) -> Result<Arc<CertifiedKey>, FileError> {
    let chain = certificates(certificate)?;
    check(&chain[0], shown).map_err(|problem| FileError::new(certificate, problem))?;
    let certified = CertifiedKey::from_der(chain, private_key(key)?, &provider());
    certified.map(Arc::new).map_err(|error| match error {
        Error::InconsistentKeys(_) => FileError::new(
            key,
            format!(
                "the key does not match the certificate in {}",
                certificate.display()
            ),
        ),
        error => FileError::new(key, format!("the key cannot be used: {error}")),
    })
}

/// What can be said against a certificate at some time, whoever has signed it.
fn verify(leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(leaf)?;
    let algorithms = provider().signature_verification_algorithms.all;
    let nobody = RootCertStore::empty();
    verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], now, algorithms)
}

/// The last moment at which a certificate counts, in seconds since 1970: what is said to who comes later.
#[cfg_attr(not(feature = "server"), allow(dead_code))]
pub(super) fn end_of(leaf: &CertificateDer<'_>) -> Option<u64> {
    let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match verify(leaf, never) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        _ => None,
    }
}

/// Whether anybody could accept this certificate now. Who has signed it is for the other side to judge.
fn check(leaf: &CertificateDer<'_>, shown: Shown) -> Result<(), String> {
    match verify(leaf, UnixTime::now()) {
        Ok(()) | Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Ok(()),
        Err(Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        )) if shown == Shown::ToServers => Ok(()),
        Err(Error::InvalidCertificate(problem)) => Err(format!(
            "the certificate cannot be used: {}",
            certificate(&problem)
        )),
        Err(error) => Err(format!("the certificate cannot be used: {error}")),
    }
}
