//! Requests: what a client says, as a line and as a value.

use super::code::Code;
use super::draft;
use super::escape::SpellingError;
use super::key::{KeyRef, NameRef, Prefix, SecretRef};
use super::limits;
use super::line::Fields;
use super::number::{ClientId, Millis, Tag, Token, Wait, parse_u64, push_u64};

/// A request. Its fields borrow from the line, so that reading one allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// `A`: grant the lock, at the latest within the wait.
    Acquire {
        /// What to lock.
        key: KeyRef<'a>,
        /// How long the grant lasts.
        lease: Millis,
        /// How long to wait for it.
        wait: Wait,
        /// Comes back with the reply.
        tag: Option<Tag>,
    },
    /// `R`: the holder needs the lock no longer.
    Release {
        /// What is locked.
        key: KeyRef<'a>,
        /// Of the grant to end.
        token: Token,
        /// Comes back with the reply.
        tag: Option<Tag>,
    },
    /// `K`: the lease ends no earlier than `lease` from now.
    Keep {
        /// What is locked.
        key: KeyRef<'a>,
        /// Of the grant to keep.
        token: Token,
        /// How long it lasts from the receipt.
        lease: Millis,
        /// Comes back with the reply.
        tag: Option<Tag>,
    },
    /// `C`: end every attempt of this client's acquire up to the tag's.
    Cancel {
        /// What was to be locked.
        key: KeyRef<'a>,
        /// Of the acquire.
        tag: Tag,
    },
    /// `I`: who holds this key?
    Inspect {
        /// What to look at.
        key: KeyRef<'a>,
        /// Comes back with the reply.
        tag: Option<Tag>,
    },
    /// `W`: who waits for this key?
    Waiters {
        /// What to look at.
        key: KeyRef<'a>,
        /// How many rows at most.
        limit: u32,
        /// Comes back with each row and the reply.
        tag: Option<Tag>,
    },
    /// `L`: which keys are held?
    List {
        /// What they begin with.
        prefix: Prefix<'a>,
        /// How many rows at most.
        limit: u32,
        /// The last key of the rows before.
        after: Option<KeyRef<'a>>,
        /// Comes back with each row and the reply.
        tag: Option<Tag>,
    },
    /// `H`: who speaks here.
    Hello(Hello<'a>),
    /// `P`: are you alive?
    Ping {
        /// Comes back with the reply.
        tag: Option<Tag>,
    },
    /// `S`: one line about the node.
    Status,
}

/// What a client says of itself in its first line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hello<'a> {
    /// Names the client instance across all its connections.
    pub id: Option<ClientId>,
    /// Shown to those who ask who holds a lock.
    pub name: Option<NameRef<'a>>,
    /// The highest token that the client knows.
    pub seen: Option<Token>,
    /// What the server wants to hear before it serves.
    pub auth: Option<SecretRef<'a>>,
}

/// A line that is no request, with what of it could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal<'a> {
    /// The letter of the operation, or `?`.
    pub op: u8,
    /// The key or prefix field as it came, or `-`.
    pub key: &'a [u8],
    /// Why.
    pub code: Code,
    /// Comes back with the reply.
    pub tag: Option<Tag>,
    /// The same for people.
    pub text: &'static str,
}

impl<'a> Request<'a> {
    /// Reads a line (without its end).
    ///
    /// # Errors
    /// What to answer instead.
    #[inline]
    pub fn parse(line: &'a [u8]) -> Result<Request<'a>, Refusal<'a>> {
        parse_fields(Fields::new(line)).map_err(|flaw| flaw.refusal(line))
    }

    /// Appends the request as a line with its end.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Request::Acquire {
                key,
                lease,
                wait,
                tag,
            } => {
                if draft::acquire(key, lease, wait, tag, out) {
                    return;
                }
                out.extend_from_slice(b"A ");
                out.extend_from_slice(key.spelling());
                out.push(b' ');
                lease.encode(out);
                out.push(b' ');
                wait.encode(out);
                push_tag(tag, out);
            }
            Request::Release { key, token, tag } => {
                if draft::release(key, token, tag, out) {
                    return;
                }
                push_key_token(b"R ", key, token, out);
                push_tag(tag, out);
            }
            Request::Keep {
                key,
                token,
                lease,
                tag,
            } => {
                push_key_token(b"K ", key, token, out);
                out.push(b' ');
                lease.encode(out);
                push_tag(tag, out);
            }
            Request::Cancel { key, tag } => {
                out.extend_from_slice(b"C ");
                out.extend_from_slice(key.spelling());
                push_tag(Some(tag), out);
            }
            Request::Inspect { key, tag } => {
                out.extend_from_slice(b"I ");
                out.extend_from_slice(key.spelling());
                push_tag(tag, out);
            }
            Request::Waiters { key, limit, tag } => {
                out.extend_from_slice(b"W ");
                out.extend_from_slice(key.spelling());
                out.push(b' ');
                push_u64(u64::from(limit), out);
                push_tag(tag, out);
            }
            Request::List {
                prefix,
                limit,
                after,
                tag,
            } => {
                out.extend_from_slice(b"L ");
                out.extend_from_slice(prefix.field());
                out.push(b' ');
                push_u64(u64::from(limit), out);
                if let Some(key) = after {
                    out.extend_from_slice(b" after=");
                    out.extend_from_slice(key.spelling());
                }
                push_tag(tag, out);
            }
            Request::Hello(hello) => hello.encode(out),
            Request::Ping { tag } => {
                out.push(b'P');
                push_tag(tag, out);
            }
            Request::Status => out.push(b'S'),
        }
        out.push(b'\n');
    }
}

impl Hello<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"H 1");
        if let Some(id) = self.id {
            out.extend_from_slice(b" id=");
            id.encode(out);
        }
        if let Some(name) = self.name {
            out.extend_from_slice(b" name=");
            out.extend_from_slice(name.spelling());
        }
        if let Some(seen) = self.seen {
            out.extend_from_slice(b" seen=");
            push_u64(seen.get(), out);
        }
        if let Some(auth) = self.auth {
            out.extend_from_slice(b" auth=");
            out.extend_from_slice(auth.spelling());
        }
    }
}

#[inline]
pub(super) fn push_tag(tag: Option<Tag>, out: &mut Vec<u8>) {
    if let Some(tag) = tag {
        out.push(b' ');
        tag.encode(out);
    }
}

#[inline]
fn push_key_token(op: &[u8], key: KeyRef<'_>, token: Token, out: &mut Vec<u8>) {
    out.extend_from_slice(op);
    out.extend_from_slice(key.spelling());
    out.push(b' ');
    push_u64(token.get(), out);
}

/// What is wrong with a line.
#[derive(Clone, Copy)]
struct Flaw {
    code: Code,
    text: &'static str,
}

const fn syntax(text: &'static str) -> Flaw {
    Flaw {
        code: Code::Syntax,
        text,
    }
}

impl Flaw {
    /// Reads once more what the reply repeats. Nothing here is on the way of a good line.
    #[cold]
    fn refusal(self, line: &[u8]) -> Refusal<'_> {
        let mut fields = Fields::new(line);
        let op = fields.next().unwrap_or_default();
        let known = matches!(op, [letter] if b"ARKCIWLHPS".contains(letter));
        let keyed = matches!(op, [letter] if b"ARKCIWL".contains(letter));
        let key = match fields.next() {
            Some(field) if keyed && KeyRef::parse(field).is_ok() => field,
            Some(b"%2D") if op == b"L" => b"%2D",
            _ => b"-",
        };
        // The field in the place of the key is no tag, even if it looks like one.
        let tag = Fields::new(line)
            .skip(if keyed { 2 } else { 1 })
            .last()
            .and_then(Tag::parse);
        Refusal {
            op: if known { op[0] } else { b'?' },
            key,
            code: self.code,
            tag,
            text: self.text,
        }
    }
}

fn parse_fields(mut fields: Fields<'_>) -> Result<Request<'_>, Flaw> {
    let fields = &mut fields;
    let request = match fields.letter() {
        Some(b'A') => Request::Acquire {
            key: key(fields)?,
            lease: lease(fields)?,
            wait: wait(fields)?,
            tag: tag(fields)?,
        },
        Some(b'R') => Request::Release {
            key: key(fields)?,
            token: token(fields)?,
            tag: tag(fields)?,
        },
        letter => return parse_rarer(letter, fields),
    };
    the_end(request, fields)
}

/// What is not on the way of every lock, and so stands aside of it.
#[inline(never)]
fn parse_rarer<'a>(letter: Option<u8>, fields: &mut Fields<'a>) -> Result<Request<'a>, Flaw> {
    let request = match letter {
        Some(b'K') => Request::Keep {
            key: key(fields)?,
            token: token(fields)?,
            lease: lease(fields)?,
            tag: tag(fields)?,
        },
        Some(b'C') => Request::Cancel {
            key: key(fields)?,
            tag: tag(fields)?.ok_or(syntax("a cancel names the tag of its acquire"))?,
        },
        Some(b'I') => Request::Inspect {
            key: key(fields)?,
            tag: tag(fields)?,
        },
        Some(b'W') => Request::Waiters {
            key: key(fields)?,
            limit: limit(fields)?,
            tag: tag(fields)?,
        },
        Some(b'L') => list(fields)?,
        Some(b'H') => hello(fields)?,
        Some(b'P') => Request::Ping { tag: tag(fields)? },
        Some(b'S') => Request::Status,
        _ => return Err(syntax("unknown operation")),
    };
    the_end(request, fields)
}

#[inline(always)]
fn the_end<'a>(request: Request<'a>, fields: &Fields<'a>) -> Result<Request<'a>, Flaw> {
    if fields.is_over() {
        Ok(request)
    } else {
        Err(syntax("more fields than this operation has"))
    }
}

fn next<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], Flaw> {
    fields.next().ok_or(MISSING)
}

const MISSING: Flaw = syntax("a field is missing");

fn key_of<'a>(field: &'a [u8]) -> Result<KeyRef<'a>, Flaw> {
    KeyRef::parse(field).map_err(key_flaw)
}

fn key_flaw(error: SpellingError) -> Flaw {
    Flaw {
        code: Code::Key,
        text: match error {
            SpellingError::Empty => "a key has at least one byte",
            SpellingError::TooLong => "a key has at most 512 bytes",
            SpellingError::BareByte => "a control byte in a key is written %XX",
            SpellingError::BadEscape => "% in a key is followed by two upper-case hex digits",
            SpellingError::NeedlessEscape => "escape of a byte that needs none",
        },
    }
}

#[inline(always)]
fn key<'a>(fields: &mut Fields<'a>) -> Result<KeyRef<'a>, Flaw> {
    match KeyRef::next(fields) {
        Some(Ok(key)) => Ok(key),
        Some(Err(error)) => Err(key_flaw(error)),
        None => Err(MISSING),
    }
}

#[inline(always)]
fn lease(fields: &mut Fields<'_>) -> Result<Millis, Flaw> {
    const NO_LEASE: Flaw = Flaw {
        code: Code::Lease,
        text: "a lease is seconds from 0.001 up to the server's limit, with at most three fraction digits",
    };
    match Millis::next_limited(fields) {
        Some(lease) => lease.ok_or(NO_LEASE),
        None => Err(MISSING),
    }
}

#[inline(always)]
fn wait(fields: &mut Fields<'_>) -> Result<Wait, Flaw> {
    const NO_WAIT: Flaw = Flaw {
        code: Code::Wait,
        text: "a wait is 0, -, or seconds from 0.001 to 31536000 with at most three fraction digits",
    };
    match Wait::next(fields) {
        Some(wait) => wait.ok_or(NO_WAIT),
        None => Err(MISSING),
    }
}

#[inline(always)]
fn token(fields: &mut Fields<'_>) -> Result<Token, Flaw> {
    match Token::next(fields) {
        Some(token) => token.ok_or(syntax("a token is a number from 1, below 2^63")),
        None => Err(MISSING),
    }
}

fn limit(fields: &mut Fields<'_>) -> Result<u32, Flaw> {
    parse_u64(next(fields)?)
        .and_then(|rows| u32::try_from(rows).ok())
        .filter(|rows| (1..=limits::ROWS_MAX).contains(rows))
        .ok_or(syntax("a limit is a number from 1 to 100000"))
}

#[inline(always)]
fn tag(fields: &mut Fields<'_>) -> Result<Option<Tag>, Flaw> {
    if fields.is_over() {
        return Ok(None);
    }
    Tag::next(fields).map(Some).ok_or(NO_TAG)
}

const NO_TAG: Flaw =
    syntax("in the place of a tag: # and a number, for attempts . and their number");

fn tag_of(field: &[u8]) -> Result<Tag, Flaw> {
    Tag::parse(field).ok_or(NO_TAG)
}

fn list<'a>(fields: &mut Fields<'a>) -> Result<Request<'a>, Flaw> {
    let prefix = Prefix::parse(next(fields)?).map_err(key_flaw)?;
    let limit = limit(fields)?;
    let mut after = None;
    let mut last = fields.next();
    if let Some(field) = last.and_then(|field| field.strip_prefix(b"after=")) {
        after = Some(key_of(field)?);
        last = fields.next();
    }
    Ok(Request::List {
        prefix,
        limit,
        after,
        tag: last.map(tag_of).transpose()?,
    })
}

fn hello<'a>(fields: &mut Fields<'a>) -> Result<Request<'a>, Flaw> {
    const TWICE: Flaw = syntax("a field of the hello stands twice");
    let version = parse_u64(next(fields)?).ok_or(syntax("a hello names a version"))?;
    if version != u64::from(limits::VERSION) {
        return Err(Flaw {
            code: Code::Version,
            text: "this server speaks version 1",
        });
    }
    let mut hello = Hello::default();
    for field in fields {
        let once = if let Some(id) = field.strip_prefix(b"id=") {
            let id = ClientId::parse(id).ok_or(syntax("an id has 32 hex digits"))?;
            hello.id.replace(id).is_none()
        } else if let Some(name) = field.strip_prefix(b"name=") {
            let name = NameRef::parse(name)
                .map_err(|_| syntax("a name has 1 to 128 bytes, escaped as a key is"))?;
            hello.name.replace(name).is_none()
        } else if let Some(seen) = field.strip_prefix(b"seen=") {
            let seen = Token::parse(seen).ok_or(syntax("seen is a token"))?;
            hello.seen.replace(seen).is_none()
        } else if let Some(auth) = field.strip_prefix(b"auth=") {
            let auth = SecretRef::parse(auth)
                .map_err(|_| syntax("a secret has 1 to 512 bytes, escaped as a key is"))?;
            hello.auth.replace(auth).is_none()
        } else {
            return Err(syntax("a hello has the fields id, name, seen and auth"));
        };
        if !once {
            return Err(TWICE);
        }
    }
    Ok(Request::Hello(hello))
}
