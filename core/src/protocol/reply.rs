//! Replies: what a node says, as a line and as a value.

use super::code::Code;
use super::key::{KeyRef, NameRef, Prefix};
use super::line::Fields;
use super::number::{Millis, Tag, Token, parse_u64, push_u64};
use super::request::{Refusal, push_tag};
use super::spelled::SpelledToken;
use std::fmt;

/// What a node is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It does not know yet.
    Starting,
    /// It copies the active node and serves nobody.
    Standby,
    /// It serves.
    Active,
    /// It is about to stop.
    Leaving,
}

impl Role {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Starting => "starting",
            Role::Standby => "standby",
            Role::Active => "active",
            Role::Leaving => "leaving",
        }
    }

    fn parse(word: &str) -> Option<Role> {
        [Role::Starting, Role::Standby, Role::Active, Role::Leaving]
            .into_iter()
            .find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The operation that a reply belongs to: with the key it tells replies apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// `A`
    Acquire,
    /// `R`
    Release,
    /// `K`
    Keep,
    /// `C`
    Cancel,
    /// `I`
    Inspect,
    /// `W`
    Waiters,
    /// `L`
    List,
    /// `H`
    Hello,
    /// `P`
    Ping,
    /// `S`
    Status,
}

impl Operation {
    const ALL: [(Operation, u8); 10] = [
        (Operation::Acquire, b'A'),
        (Operation::Release, b'R'),
        (Operation::Keep, b'K'),
        (Operation::Cancel, b'C'),
        (Operation::Inspect, b'I'),
        (Operation::Waiters, b'W'),
        (Operation::List, b'L'),
        (Operation::Hello, b'H'),
        (Operation::Ping, b'P'),
        (Operation::Status, b'S'),
    ];

    /// The letter on the wire.
    #[must_use]
    pub fn letter(self) -> u8 {
        Operation::ALL
            .iter()
            .find(|(operation, _)| *operation == self)
            .map_or(b'?', |(_, letter)| *letter)
    }

    /// The operation with this letter.
    #[must_use]
    pub fn of_letter(letter: u8) -> Option<Operation> {
        Operation::ALL
            .iter()
            .find(|(_, candidate)| *candidate == letter)
            .map(|(operation, _)| *operation)
    }
}

/// A reply, or the one line that a node sends unasked. Its fields borrow from the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// `A`: granted with this token.
    Granted {
        /// What is locked now.
        key: KeyRef<'a>,
        /// Of the grant.
        token: Token,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `T`: not within the wait, and nothing was granted.
    TimedOut {
        /// What is not locked.
        key: KeyRef<'a>,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `R … ok` or `R … stale`.
    Released {
        /// What was to be released.
        key: KeyRef<'a>,
        /// False if the token did not hold the key.
        ok: bool,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `K … ok` or `K … stale`.
    Kept {
        /// What was to be kept.
        key: KeyRef<'a>,
        /// False if the token does not hold the key.
        ok: bool,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `C … ok` or `C … none`.
    Cancelled {
        /// Of the acquire.
        key: KeyRef<'a>,
        /// False if there was no such acquire.
        found: bool,
        /// Of the acquire.
        tag: Tag,
    },
    /// `I … free`.
    Free {
        /// What was asked for.
        key: KeyRef<'a>,
        /// How many wait (for a head that has lost its connection).
        waiters: u64,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `I … held`.
    Held {
        /// The key and its holder.
        holder: Holder<'a>,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `w`: one who waits.
    WaiterRow {
        /// For what.
        key: KeyRef<'a>,
        /// From 1.
        position: u64,
        /// Since when.
        waited: Millis,
        /// Of the client.
        name: NameRef<'a>,
        /// Of the client.
        address: &'a str,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `W`: the end of the rows.
    Waiters {
        /// What was asked for.
        key: KeyRef<'a>,
        /// The length of the queue.
        count: u64,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `l`: one held key.
    LockRow {
        /// The key and its holder.
        holder: Holder<'a>,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `L`: the end of the rows.
    Listed {
        /// What was asked for.
        prefix: Prefix<'a>,
        /// The number of rows.
        count: u64,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `H`: who answers.
    Hello(HelloReply<'a>),
    /// `P`: alive.
    Pong {
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `S`: one line about the node.
    Status(StatusReply<'a>),
    /// `M`: nothing was done; ask the active node.
    Moved {
        /// Of the request.
        operation: Operation,
        /// The key or prefix of the request.
        key: &'a [u8],
        /// Of the active node.
        address: &'a str,
        /// Of the request.
        tag: Option<Tag>,
    },
    /// `N`: the active node is now at this address.
    ActiveAt {
        /// Of the active node.
        address: &'a str,
    },
    /// `E`: refused, and nothing was done.
    Refused {
        /// Of the request, if it could be read.
        operation: Option<Operation>,
        /// The key or prefix of the request, or `-`.
        key: &'a [u8],
        /// Why; words of later versions are kept as they came.
        code: &'a str,
        /// Of the request.
        tag: Option<Tag>,
        /// The same for people.
        text: &'a str,
    },
}

/// A held key and who holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder<'a> {
    /// What is locked.
    pub key: KeyRef<'a>,
    /// Of the grant.
    pub token: Token,
    /// What is left of the lease.
    pub remaining: Millis,
    /// The length of the queue.
    pub waiters: u64,
    /// Of the client that holds it.
    pub name: NameRef<'a>,
    /// Of the client that holds it.
    pub address: &'a str,
}

/// What a node says of itself in answer to a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloReply<'a> {
    /// What the node is.
    pub role: Role,
    /// Its own address.
    pub node: &'a str,
    /// The active node, if the node knows it.
    pub active: Option<&'a str>,
    /// The nodes of the cluster in the order of their priority.
    pub peers: AddressList<'a>,
    /// The version of the server program.
    pub server: &'a str,
}

/// A node's state in one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusReply<'a> {
    /// What the node is.
    pub role: Role,
    /// Its own address.
    pub node: &'a str,
    /// The active node, if the node knows it.
    pub active: Option<&'a str>,
    /// The term of its tokens.
    pub term: u32,
    /// How many keys are held.
    pub held: u64,
    /// How many requests wait.
    pub waiting: u64,
    /// How many connections there are.
    pub connections: u64,
    /// The standbys that have a copy of the state.
    pub standbys: AddressList<'a>,
}

/// Addresses in one field, separated by commas; `-` for none, and for a place without a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressList<'a>(pub &'a str);

impl<'a> AddressList<'a> {
    /// The addresses that are there.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.0
            .split(',')
            .filter(|address| !matches!(*address, "" | "-"))
    }
}

impl<'a> From<Refusal<'a>> for Reply<'a> {
    fn from(refusal: Refusal<'a>) -> Reply<'a> {
        Reply::Refused {
            operation: Operation::of_letter(refusal.op),
            key: refusal.key,
            code: refusal.code.as_str(),
            tag: refusal.tag,
            text: refusal.text,
        }
    }
}

impl<'a> Reply<'a> {
    /// A refusal with one of the known codes.
    #[must_use]
    pub fn refused(
        operation: Operation,
        key: &'a [u8],
        code: Code,
        tag: Option<Tag>,
        text: &'a str,
    ) -> Reply<'a> {
        Reply::Refused {
            operation: Some(operation),
            key,
            code: code.as_str(),
            tag,
            text,
        }
    }

    /// As [`Reply::encode`], for who writes many replies: says tokens faster that come one after the other.
    #[inline(always)]
    pub fn encode_with(&self, spelled: &mut SpelledToken, out: &mut Vec<u8>) {
        match *self {
            Reply::Granted { key, token, tag } => {
                push_granted(key, spelled.spell(token), tag, out);
            }
            _ => self.encode(out),
        }
    }

    /// Appends the reply as a line with its end.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Reply::Granted { key, token, tag } => {
                return push_granted(key, SpelledToken::new().spell(token), tag, out);
            }
            Reply::Released { key, ok, tag } => {
                out.extend_from_slice(b"R ");
                out.extend_from_slice(key.spelling());
                out.extend_from_slice(if ok { b" ok" } else { b" stale" });
                push_tag(tag, out);
            }
            _ => self.encode_rarer(out),
        }
        out.push(b'\n');
    }

    /// What is not on the way of every lock, and so stands aside of it.
    #[inline(never)]
    fn encode_rarer(&self, out: &mut Vec<u8>) {
        match *self {
            Reply::Granted { .. } | Reply::Released { .. } => {}
            Reply::TimedOut { key, tag } => {
                push_words(out, b"T", &[key.spelling()]);
                push_tag(tag, out);
            }
            Reply::Kept { key, ok, tag } => {
                push_words(out, b"K", &[key.spelling(), ok_or_stale(ok)]);
                push_tag(tag, out);
            }
            Reply::Cancelled { key, found, tag } => {
                let word = if found { &b"ok"[..] } else { b"none" };
                push_words(out, b"C", &[key.spelling(), word]);
                push_tag(Some(tag), out);
            }
            Reply::Free { key, waiters, tag } => {
                push_words(out, b"I", &[key.spelling(), b"free "]);
                push_u64(waiters, out);
                push_tag(tag, out);
            }
            Reply::Held { holder, tag } => {
                push_words(out, b"I", &[holder.key.spelling(), b"held "]);
                holder.encode_rest(out);
                push_tag(tag, out);
            }
            Reply::WaiterRow {
                key,
                position,
                waited,
                name,
                address,
                tag,
            } => {
                push_words(out, b"w", &[key.spelling(), b""]);
                push_u64(position, out);
                out.push(b' ');
                waited.encode(out);
                push_words(out, b"", &[name.spelling(), address.as_bytes()]);
                push_tag(tag, out);
            }
            Reply::Waiters { key, count, tag } => {
                push_words(out, b"W", &[key.spelling(), b""]);
                push_u64(count, out);
                push_tag(tag, out);
            }
            Reply::LockRow { holder, tag } => {
                push_words(out, b"l", &[holder.key.spelling(), b""]);
                holder.encode_rest(out);
                push_tag(tag, out);
            }
            Reply::Listed { prefix, count, tag } => {
                push_words(out, b"L", &[prefix.field(), b""]);
                push_u64(count, out);
                push_tag(tag, out);
            }
            Reply::Hello(hello) => {
                out.extend_from_slice(b"H 1");
                push_identity(out, hello.role, hello.node, hello.active);
                push_pair(out, " peers=", hello.peers.0);
                push_pair(out, " server=", hello.server);
            }
            Reply::Pong { tag } => {
                out.push(b'P');
                push_tag(tag, out);
            }
            Reply::Status(status) => {
                out.push(b'S');
                push_identity(out, status.role, status.node, status.active);
                for (name, number) in [
                    (" term=", u64::from(status.term)),
                    (" held=", status.held),
                    (" waiting=", status.waiting),
                    (" connections=", status.connections),
                ] {
                    out.extend_from_slice(name.as_bytes());
                    push_u64(number, out);
                }
                push_pair(out, " standbys=", status.standbys.0);
            }
            Reply::Moved {
                operation,
                key,
                address,
                tag,
            } => {
                push_words(out, b"M", &[&[operation.letter()], key, address.as_bytes()]);
                push_tag(tag, out);
            }
            Reply::ActiveAt { address } => push_words(out, b"N", &[address.as_bytes()]),
            Reply::Refused {
                operation,
                key,
                code,
                tag,
                text,
            } => {
                let letter = operation.map_or(b'?', Operation::letter);
                push_words(out, b"E", &[&[letter], key, code.as_bytes()]);
                push_tag(tag, out);
                push_words(out, b"", &[text.as_bytes()]);
            }
        }
    }

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
    /// What stands behind the key.
    fn encode_rest(&self, out: &mut Vec<u8>) {
        push_u64(self.token.get(), out);
        out.push(b' ');
        self.remaining.encode(out);
        out.push(b' ');
        push_u64(self.waiters, out);
        push_words(out, b"", &[self.name.spelling(), self.address.as_bytes()]);
    }

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

fn ok_or_stale(ok: bool) -> &'static [u8] {
    if ok { b"ok" } else { b"stale" }
}

#[inline]
fn push_granted(key: KeyRef<'_>, token: &[u8], tag: Option<Tag>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"A ");
    out.extend_from_slice(key.spelling());
    out.push(b' ');
    out.extend_from_slice(token);
    push_tag(tag, out);
    out.push(b'\n');
}

/// Appends `first` and then each word behind a space.
fn push_words(out: &mut Vec<u8>, first: &[u8], words: &[&[u8]]) {
    out.extend_from_slice(first);
    for word in words {
        out.push(b' ');
        out.extend_from_slice(word);
    }
}

fn push_pair(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(if value.is_empty() {
        b"-"
    } else {
        value.as_bytes()
    });
}

fn push_identity(out: &mut Vec<u8>, role: Role, node: &str, active: Option<&str>) {
    push_pair(out, " role=", role.as_str());
    push_pair(out, " node=", node);
    push_pair(out, " active=", active.unwrap_or("-"));
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
    text(fields.next()?)
        .filter(|address| (1..=super::limits::ADDRESS_BYTES).contains(&address.len()))
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
