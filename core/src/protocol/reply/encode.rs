//! Replies as lines: how a node writes them.

use super::super::key::KeyRef;
use super::super::number::{Tag, push_u64};
use super::super::request::push_tag;
use super::super::spelled::SpelledToken;
use super::{Holder, Operation, Reply, Role};

impl Reply<'_> {
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
}

impl Holder<'_> {
    /// What stands behind the key.
    fn encode_rest(&self, out: &mut Vec<u8>) {
        push_u64(self.token.get(), out);
        out.push(b' ');
        self.remaining.encode(out);
        out.push(b' ');
        push_u64(self.waiters, out);
        push_words(out, b"", &[self.name.spelling(), self.address.as_bytes()]);
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
