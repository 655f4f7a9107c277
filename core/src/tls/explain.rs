//! What went wrong with a handshake, in words that say what to do.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// `client` says on which side it went wrong.
pub(super) fn explain(error: &Error, client: bool) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) if client => {
            "the server does not speak TLS on this port".to_owned()
        }
        Error::InvalidCertificate(problem) if client => {
            format!(
                "the server's certificate is not accepted: {}",
                certificate(problem)
            )
        }
        Error::InvalidCertificate(problem) => {
            format!(
                "the client's certificate is not accepted: {}",
                certificate(problem)
            )
        }
        Error::NoCertificatesPresented if !client => "the client shows no certificate".to_owned(),
        Error::AlertReceived(alert) if client => match alert {
            AlertDescription::CertificateRequired => {
                "the server wants a certificate of this client (cert_file, key_file)".to_owned()
            }
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError => {
                format!("the server does not accept this client's certificate ({alert:?})")
            }
            AlertDescription::ProtocolVersion => "the server does not speak TLS 1.3".to_owned(),
            other => format!("the server ended the TLS handshake: {other:?}"),
        },
        Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA => {
                "the client does not know the CA of this node's certificate".to_owned()
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown => {
                format!("the client does not accept this node's certificate ({alert:?})")
            }
            other => format!("the client ended the TLS handshake: {other:?}"),
        },
        Error::PeerIncompatible(_) => {
            let who = if client { "server" } else { "client" };
            format!("the {who} does not speak TLS 1.3 as this side does ({error})")
        }
        other => format!("TLS: {other}"),
    }
}

/// What is wrong with a certificate.
pub(super) fn certificate(problem: &CertificateError) -> String {
    match problem {
        CertificateError::ExpiredContext { time, not_after } => {
            let since = time.as_secs().saturating_sub(not_after.as_secs());
            format!("it expired {} ago", span(since))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let until = not_before.as_secs().saturating_sub(time.as_secs());
            format!("it is not valid before {} from now", span(until))
        }
        CertificateError::UnknownIssuer => {
            "no CA that is known here has signed it (is it the right ca_file?)".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names = presented.iter().map(|name| bare(name)).collect::<Vec<_>>();
            let names = if names.is_empty() {
                "no name".to_owned()
            } else {
                names.join(", ")
            };
            format!(
                "it is for {names} and not for {} (server_name says what to expect)",
                expected.to_str()
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is made for another purpose (extended key usage)".to_owned()
        }
        other if is_of_a_ca(other) => {
            "it is the certificate of a CA; what is shown has to be one with CA:FALSE".to_owned()
        }
        other => other.to_string(),
    }
}

fn is_of_a_ca(problem: &CertificateError) -> bool {
    // The kind itself is one of a crate below rustls.
    matches!(problem, CertificateError::Other(inner) if format!("{inner:?}").contains("CaUsedAsEndEntity"))
}

/// rustls writes `DnsName("a")` or `IpAddress(::1)`.
fn bare(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7200 => (seconds / 60, "minute"),
        7200..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        assert_eq!(span(1), "1 second");
        assert_eq!(span(119), "119 seconds");
        assert_eq!(span(3600), "60 minutes");
        assert_eq!(span(86_400), "24 hours");
        assert_eq!(span(400 * 86_400), "400 days");
    }

    #[test]
    fn names_are_told_without_what_is_around_them() {
        assert_eq!(bare("DnsName(\"db.example\")"), "db.example");
        assert_eq!(bare("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(bare("odd"), "odd");
    }
}
