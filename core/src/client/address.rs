//! Addresses of servers as users write them and as servers name each other.

use crate::error::Error;
use crate::protocol::limits;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// `host:port`, compared as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address(Arc<str>);

impl Address {
    /// Reads an address; a port that is left out is the default one.
    pub(crate) fn parse(text: &str) -> Result<Address, Error> {
        let wrong = |what: &str| {
            Err(Error::argument(format!(
                "{text:?} is not the address of a server: {what}; write host:port, for IPv6 [::1]:7420"
            )))
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => {
                    match (rest, rest.strip_prefix(':')) {
                        ("", _) => (&text[..host.len() + 2], None),
                        (_, Some(port)) => (&text[..host.len() + 2], Some(port)),
                        _ => return wrong("there is something between ] and the port"),
                    }
                }
                _ => return wrong("between [ and ] stands no IPv6 address"),
            },
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return wrong("it has more than one colon");
                }
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return wrong("it names no host");
        }
        if host
            .bytes()
            .any(|byte| byte <= 0x20 || byte == 0x7F || byte == b'/' || byte == b'@')
        {
            return wrong("a host has no such characters");
        }
        let port = match port {
            None => limits::DEFAULT_PORT,
            Some(port) => match port.parse::<u16>() {
                Ok(number) if number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                    number
                }
                _ => return wrong("the port is a number from 1 to 65535"),
            },
        };
        let full = format!("{host}:{port}");
        if full.len() > limits::ADDRESS_BYTES {
            return wrong("it is too long");
        }
        Ok(Address(full.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The address itself where no name has to be looked up.
    pub(crate) fn literal(&self) -> Option<SocketAddr> {
        self.0.parse().ok()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A client has a connection to each of its servers; more than a cluster can have nodes under several names are a mistake.
const SERVERS_MAX: usize = 256;

/// Reads lists of addresses separated by commas; an address that stands there twice counts once.
pub(crate) fn parse_list(texts: &[String]) -> Result<Vec<Address>, Error> {
    let mut addresses: Vec<Address> = Vec::new();
    for text in texts.iter().flat_map(|text| text.split(',')) {
        let address = Address::parse(text.trim())?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.len() > SERVERS_MAX {
        return Err(Error::argument(format!(
            "there are {} addresses of servers; give at most {SERVERS_MAX}",
            addresses.len()
        )));
    }
    if addresses.is_empty() {
        return Err(Error::argument(
            "there is no address of a server; give one as host:port",
        ));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_text_each() {
        let read = |text| Address::parse(text).map(|address| address.to_string());
        assert_eq!(read("a:1").as_deref(), Ok("a:1"));
        assert_eq!(read("a").as_deref(), Ok("a:7420"));
        assert_eq!(read("[::1]").as_deref(), Ok("[::1]:7420"));
        assert_eq!(read("[::1]:9").as_deref(), Ok("[::1]:9"));
        assert_eq!(read("10.0.0.1:65535").as_deref(), Ok("10.0.0.1:65535"));
        for bad in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a:x",
            "::1",
            "[::1",
            "[x]:1",
            "[::1]x",
            "a b:1",
            "http://a:1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_is_split_at_commas_and_has_each_address_once() {
        let list = parse_list(&["a:1, b:2".to_owned(), "a:1".to_owned()]).expect("two");
        assert_eq!(
            list.iter().map(Address::as_str).collect::<Vec<_>>(),
            ["a:1", "b:2"]
        );
        assert!(parse_list(&["a:1,,b:2".to_owned()]).is_err());
        let many = |count| {
            (0..count)
                .map(|nth| format!("a{nth}:1"))
                .collect::<Vec<_>>()
        };
        assert!(parse_list(&many(SERVERS_MAX)).is_ok());
        assert!(parse_list(&many(SERVERS_MAX + 1)).is_err());
    }
}
