//! Who may see the admin page. With a secret, whoever says it: as the password of any user, or as a bearer token.
//! Without one, whoever reaches the port, but not by way of a name that somebody else can point at it: a page of another
//! site in the operator's own browser could read everything otherwise (DNS rebinding).

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64ct::{Base64, Encoding};
use fairlock::node::Secret;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a line of the log may tell of wrong secrets.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// See the [module](self).
pub(super) struct Guard {
    secret: Option<Secret>,
    /// The host in the setting `admin`, as somebody may type it.
    own_host: String,
    /// How often somebody said a wrong secret, and when the log last told so.
    refused: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Guard {
    pub(super) fn new(secret: Option<Secret>, own: &str) -> Guard {
        let own_host = host(own).to_ascii_lowercase();
        Guard {
            secret,
            own_host,
            refused: AtomicU64::new(0),
            told: Mutex::new(None),
        }
    }

    /// How often somebody said a wrong secret.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Nothing, or the refusal.
    pub(super) fn refuse(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Option<Response> {
        match &self.secret {
            Some(secret) if says(headers, secret) => None,
            Some(_) => {
                // A browser says nothing at first and asks its user then.
                if headers.contains_key(header::AUTHORIZATION) {
                    self.note_wrong_secret(peer);
                }
                Some(unauthorized())
            }
            None if self.is_ours(headers) => None,
            None => Some(misdirected()),
        }
    }

    fn note_wrong_secret(&self, peer: Option<SocketAddr>) {
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            let from = peer.map_or_else(|| "somebody".to_owned(), |peer| peer.to_string());
            tracing::warn!(
                "{from} said a wrong secret to the admin page; so far that happened {count} times"
            );
        }
    }

    fn is_ours(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(only), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        let Ok(name) = only.to_str() else {
            return false;
        };
        let name = host(name).to_ascii_lowercase();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        name == "localhost" || name == self.own_host || bare.parse::<IpAddr>().is_ok()
    }
}

/// What stands before the port, if there is one.
fn host(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => address,
    }
}

fn says(headers: &HeaderMap, secret: &Secret) -> bool {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (given.next(), given.next()) else {
        return false;
    };
    password(only).is_some_and(|password| secret.matches(&password))
}

/// What is said in an `Authorization` header; the name of the user does not matter.
fn password(header: &HeaderValue) -> Option<Vec<u8>> {
    let bytes = header.as_bytes();
    let (scheme, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == b' ')?);
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(rest.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = Base64::decode_vec(std::str::from_utf8(rest).ok()?).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

fn unauthorized() -> Response {
    let ask = [(
        header::WWW_AUTHENTICATE,
        "Basic realm=\"fairlock\", charset=\"UTF-8\"",
    )];
    let text = "the admin page asks for its secret (admin_secret): as a password of any user, or as a bearer token\n";
    (StatusCode::UNAUTHORIZED, ask, text).into_response()
}

fn misdirected() -> Response {
    let text = "this name is not the admin page's own: ask for its address or localhost, or set admin_secret\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value.parse().expect("a header"));
        }
        headers
    }

    #[test]
    fn only_the_secret_opens_as_a_password_or_as_a_token() {
        let guard = Guard::new(Some(Secret::new("open:sesame")), "127.0.0.1:0");
        let opens = |lines: &[&str]| {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| (header::AUTHORIZATION, *line))
                .collect();
            guard.refuse(&headers(&lines), None).is_none()
        };
        let basic = |pair: &str| format!("Basic {}", Base64::encode_string(pair.as_bytes()));
        for right in [
            &*basic("anybody:open:sesame"),
            &basic(":open:sesame"),
            "Bearer open:sesame",
            "bearer  open:sesame",
        ] {
            assert!(opens(&[right]), "{right}");
        }
        for wrong in [
            &*basic("open:sesame"),
            &basic("a:open:sesam"),
            &basic("a:open:sesame "),
            &basic("a:"),
            &basic("open"),
            "Basic",
            "Basic %%%",
            "Bearer",
            "Bearer ",
            "Digest open:sesame",
            "open:sesame",
        ] {
            assert!(!opens(&[wrong]), "{wrong}");
        }
        let wrong = guard.refused();
        assert_eq!(wrong, 11, "each is counted");
        assert!(!opens(&[]));
        assert_eq!(
            guard.refused(),
            wrong,
            "who says nothing says nothing wrong"
        );
        assert!(!opens(&["Bearer open:sesame", "Bearer no"]), "two of them");
    }

    #[test]
    fn without_a_secret_names_of_others_are_turned_away() {
        let guard = Guard::new(None, "Locks.Internal:7429");
        let opens = |hosts: &[&str]| {
            let lines: Vec<_> = hosts.iter().map(|host| (header::HOST, *host)).collect();
            guard.refuse(&headers(&lines), None).is_none()
        };
        for own in [
            "localhost",
            "LOCALHOST:7429",
            "127.0.0.1:1",
            "[::1]:7429",
            "[::1]",
            "10.0.0.1:7429",
            "locks.internal:80",
        ] {
            assert!(opens(&[own]), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:7429",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7429",
            "127.0.0.1:7429.evil.example",
            "",
        ] {
            assert!(!opens(&[foreign]), "{foreign}");
        }
        assert!(!opens(&[]));
        assert!(!opens(&["localhost", "evil.example"]));
    }
}
