//! Replies from lines: how a client reads them.

use super::super::key::{KeyRef, NameRef, Prefix};
use super::super::limits;
use super::super::line::Fields;
use super::super::number::{Millis, Tag, Token, parse_u64};
use super::{AddressList, HelloReply, Holder, Operation, Reply, Role, StatusReply};

impl<'a> Reply<'a> {
    /// Reads a line (without its end). Further fields behind the known ones of `H` and `S` are
    /// passed over, so that later servers can say more.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Reply<'a>> {
        let mut fields = Fields::new(line);
        let fields = &mut fields;
        let reply = match fields.letter()? {
            b'A' => Reply::Granted {
                key: key(fields)?,
                token: Token::next(fields)??,
                tag: tag(fields)?,
            },
            b'T' => Reply::TimedOut {
                key: key(fields)?,
                tag: tag(fields)?,
            },
            b'R' => Reply::Released {
                key: key(fields)?,
                ok: one_of(fields, b"ok", b"stale")?,
                tag: tag(fields)?,
            },
            b'K' => Reply::Kept {
                key: key(fields)?,
                ok: one_of(fields, b"ok", b"stale")?,
                tag: tag(fields)?,
            },
            b'C' => Reply::Cancelled {
                key: key(fields)?,
                found: one_of(fields, b"ok", b"none")?,
                tag: tag(fields)??,
            },
            b'I' => {
                let key = key(fields)?;
                if one_of(fields, b"free", b"held")? {
                    Reply::Free {
                        key,
                        waiters: number(fields)?,
                        tag: tag(fields)?,
                    }
                } else {
                    Reply::Held {
                        holder: Holder::parse_rest(key, fields)?,
                        tag: tag(fields)?,
                    }
                }
            }
            b'w' => Reply::WaiterRow {
                key: key(fields)?,
                position: number(fields)?,
                waited: Millis::parse(fields.next()?)?,
                name: NameRef::parse(fields.next()?).ok()?,
                address: text(fields.next()?)?,
                tag: tag(fields)?,
            },
            b'W' => Reply::Waiters {
                key: key(fields)?,
                count: number(fields)?,
                tag: tag(fields)?,
            },
            b'l' => Reply::LockRow {
                holder: Holder::parse_rest(key(fields)?, fields)?,
                tag: tag(fields)?,
            },
            b'L' => Reply::Listed {
                prefix: Prefix::parse(fields.next()?).ok()?,
                count: number(fields)?,
                tag: tag(fields)?,
            },
            b'H' => {
                if fields.next()? != b"1" {
                    return None;
                }
                return Some(Reply::Hello(parse_hello(fields)?));
            }
            b'P' => Reply::Pong { tag: tag(fields)? },
            b'S' => return Some(Reply::Status(parse_status(fields)?)),
            b'M' => Reply::Moved {
                operation: Operation::of_letter(letter(fields.next()?)?)?,
                key: prefix_or_key(fields.next()?)?,
                address: address(fields)?,
                tag: tag(fields)?,
            },
            b'N' => Reply::ActiveAt {
                address: address(fields)?,
            },
            b'E' => return parse_refused(fields),
            _ => return None,
        };
        fields.is_over().then_some(reply)
    }
}

impl<'a> Holder<'a> {
    fn parse_rest(key: KeyRef<'a>, fields: &mut Fields<'a>) -> Option<Holder<'a>> {
        Some(Holder {
            key,
            token: Token::parse(fields.next()?)?,
            remaining: Millis::parse(fields.next()?)?,
            waiters: number(fields)?,
            name: NameRef::parse(fields.next()?).ok()?,
            address: text(fields.next()?)?,
        })
    }
}

fn key<'a>(fields: &mut Fields<'a>) -> Option<KeyRef<'a>> {
    KeyRef::next(fields)?.ok()
}

fn prefix_or_key(field: &[u8]) -> Option<&[u8]> {
    Prefix::parse(field).ok().map(Prefix::field)
}

fn number(fields: &mut Fields<'_>) -> Option<u64> {
    parse_u64(fields.next()?)
}

/// The tag in the last place: the inner `None` where there is no such field.
#[allow(clippy::option_option)]
fn tag(fields: &mut Fields<'_>) -> Option<Option<Tag>> {
    if fields.is_over() {
        return Some(None);
    }
    Tag::next(fields).map(Some)
}

/// True for the first word, false for the second.
fn one_of(fields: &mut Fields<'_>, first: &[u8], second: &[u8]) -> Option<bool> {
    let word = fields.next()?;
    (word == first || word == second).then(|| word == first)
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

fn letter(field: &[u8]) -> Option<u8> {
    match field {
        [letter] => Some(*letter),
        _ => None,
    }
}

fn address<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    text(fields.next()?).filter(|address| (1..=limits::ADDRESS_BYTES).contains(&address.len()))
}

/// The value of `name=value` in the next field.
fn pair<'a>(fields: &mut Fields<'a>, name: &str) -> Option<&'a str> {
    text(fields.next()?.strip_prefix(name.as_bytes())?)
}

fn parse_identity<'a>(fields: &mut Fields<'a>) -> Option<(Role, &'a str, Option<&'a str>)> {
    let role = Role::parse(pair(fields, "role=")?)?;
    let node = pair(fields, "node=")?;
    let active = Some(pair(fields, "active=")?).filter(|address| *address != "-");
    Some((role, node, active))
}

fn parse_hello<'a>(fields: &mut Fields<'a>) -> Option<HelloReply<'a>> {
    let (role, node, active) = parse_identity(fields)?;
    Some(HelloReply {
        role,
        node,
        active,
        peers: AddressList(pair(fields, "peers=")?),
        server: pair(fields, "server=")?,
    })
}

fn parse_status<'a>(fields: &mut Fields<'a>) -> Option<StatusReply<'a>> {
    let (role, node, active) = parse_identity(fields)?;
    let mut count = |name| parse_u64(pair(fields, name)?.as_bytes());
    Some(StatusReply {
        role,
        node,
        active,
        term: u32::try_from(count("term=")?).ok()?,
        held: count("held=")?,
        waiting: count("waiting=")?,
        connections: count("connections=")?,
        standbys: AddressList(pair(fields, "standbys=")?),
    })
}

fn parse_refused<'a>(fields: &mut Fields<'a>) -> Option<Reply<'a>> {
    let operation = match letter(fields.next()?)? {
        b'?' => None,
        letter => Some(Operation::of_letter(letter)?),
    };
    let key = prefix_or_key(fields.next()?)?;
    let code = text(fields.next()?).filter(|code| !code.is_empty())?;
    let mut rest = fields.rest().unwrap_or_default();
    let mut tag = None;
    if rest.starts_with(b"#") {
        tag = Some(Tag::parse(fields.next()?)?);
        rest = fields.rest().unwrap_or_default();
    }
    Some(Reply::Refused {
        operation,
        key,
        code,
        tag,
        text: text(rest)?,
    })
}
