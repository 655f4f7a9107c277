//! The one line with which a node opens a link to another, and the answer. After them frames follow.
//!
//! ```text
//! → J 1 node=a:7420 list=a:7420,b:7420 public=lock.example:7420 secret=…
//! ← J 1 ok
//! → frames
//! ```
//!
//! A link that is refused gets a line as a client does (`E ? - auth …`), and is closed.

use super::frame::VERSION;
use super::members::{Members, MembersError};
use crate::protocol::{Code, SecretRef};

/// Who opens a link, and what it believes the cluster to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting<'a> {
    /// Its own address, as it stands in its list.
    pub node: &'a str,
    /// Its list.
    pub list: &'a str,
    /// What clients are to call it.
    pub public: &'a str,
    /// What only nodes of the cluster know.
    pub secret: Option<SecretRef<'a>>,
}

/// Why a link is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GreetingError {
    /// Another version of the frames.
    #[error("this node speaks version {VERSION} of the link between nodes, the other one {0}")]
    Version(String),
    /// A line that no version would send.
    #[error("not the first line of a link between nodes: {0}")]
    Syntax(&'static str),
    /// The other one's list cannot be one.
    #[error("the list {list} of node {node}: {error}")]
    List {
        /// Its own address.
        node: String,
        /// Its list.
        list: String,
        /// What is wrong with it.
        error: MembersError,
    },
    /// The lists contradict each other.
    #[error(
        "the lists of nodes contradict each other: {own} here, {other} on {node}; each node has to be in both lists in the same place, and the rest in the same order"
    )]
    Contradiction {
        /// The other node.
        node: String,
        /// The list here.
        own: String,
        /// The list there.
        other: String,
    },
}

impl GreetingError {
    /// The code of the reply.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            GreetingError::Version(_) => Code::Version,
            GreetingError::Syntax(_)
            | GreetingError::List { .. }
            | GreetingError::Contradiction { .. } => Code::Syntax,
        }
    }
}

/// Whether a line opens a link, in whatever version.
#[must_use]
pub fn opens_link(line: &[u8]) -> bool {
    line.starts_with(b"J ")
}

impl<'a> Greeting<'a> {
    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = format!(
            "J {VERSION} node={} list={} public={}",
            self.node, self.list, self.public
        )
        .into_bytes();
        if let Some(secret) = self.secret {
            line.extend_from_slice(b" secret=");
            line.extend_from_slice(secret.spelling());
        }
        line.push(b'\n');
        line
    }

    /// Reads the line, without its end.
    ///
    /// # Errors
    /// Another version, or not such a line.
    pub fn parse(line: &'a [u8]) -> Result<Greeting<'a>, GreetingError> {
        let mut fields = line.split(|byte| *byte == b' ');
        if fields.next() != Some(b"J") {
            return Err(GreetingError::Syntax("it does not begin with J"));
        }
        let version = fields.next().unwrap_or_default();
        if version != VERSION.to_string().as_bytes() {
            let version = version.iter().take(20).copied().collect::<Vec<u8>>();
            let version = String::from_utf8_lossy(&version).into_owned();
            return Err(GreetingError::Version(version));
        }
        let mut text = |name: &str| {
            let field = fields.next().unwrap_or_default();
            let value = field.strip_prefix(name.as_bytes());
            value.and_then(|value| std::str::from_utf8(value).ok())
        };
        let node = text("node=").ok_or(GreetingError::Syntax("node= is missing"))?;
        let list = text("list=").ok_or(GreetingError::Syntax("list= is missing"))?;
        let public = text("public=").ok_or(GreetingError::Syntax("public= is missing"))?;
        let secret = match fields.next() {
            None => None,
            Some(field) => {
                let secret = field
                    .strip_prefix(b"secret=")
                    .and_then(|secret| SecretRef::parse(secret).ok());
                Some(secret.ok_or(GreetingError::Syntax("secret= is not one"))?)
            }
        };
        if fields.next().is_some() {
            return Err(GreetingError::Syntax("it has a field too many"));
        }
        if !is_address(public) {
            return Err(GreetingError::Syntax("public= is not an address"));
        }
        Ok(Greeting {
            node,
            list,
            public,
            secret,
        })
    }

    /// The other node's list, if both can be in one cluster.
    ///
    /// # Errors
    /// Its list is none, or contradicts the one here.
    pub fn members(&self, own: &Members) -> Result<Members, GreetingError> {
        let members =
            Members::new(self.list.split(','), self.node).map_err(|error| GreetingError::List {
                node: self.node.to_owned(),
                list: self.list.to_owned(),
                error,
            })?;
        if own.agrees_with(&members) && own.own() != members.own() {
            Ok(members)
        } else {
            Err(GreetingError::Contradiction {
                node: self.node.to_owned(),
                own: own.field(),
                other: self.list.to_owned(),
            })
        }
    }
}

/// The answer to a link that is taken.
#[must_use]
pub fn welcome() -> String {
    format!("J {VERSION} ok\n")
}

/// Whether the answer to a link says that it was taken.
#[must_use]
pub fn is_welcome(line: &[u8]) -> bool {
    line == welcome().trim_end().as_bytes()
}

/// What stands in a line that every client gets.
fn is_address(text: &str) -> bool {
    let fits = text.len() <= crate::protocol::limits::ADDRESS_BYTES;
    fits && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Members {
        Members::new(["a:1", "b:2"], "a:1").expect("a list")
    }

    #[test]
    fn what_is_written_can_be_read() {
        for secret in [None, SecretRef::parse(b"open%20sesame").ok()] {
            let greeting = Greeting {
                node: "b:2",
                list: "a:1,b:2,-,c:3",
                public: "lock.example:7420",
                secret,
            };
            let line = greeting.line();
            let line = line.strip_suffix(b"\n").expect("a line");
            assert!(opens_link(line));
            let read = Greeting::parse(line).expect("what was written");
            assert_eq!(read, greeting);
            read.members(&own()).expect("lists that agree");
        }
    }

    #[test]
    fn what_cannot_be_taken_says_why() {
        let same = Members::new(["a:1", "b:2"], "a:1").expect("a list");
        for (line, code, text) in [
            ("J 2 whatever=x", Code::Version, "the other one 2"),
            ("J", Code::Version, "the other one"),
            ("J 1 node=b:2", Code::Syntax, "list= is missing"),
            (
                "J 1 node=b:2 list=a:1,b:2",
                Code::Syntax,
                "public= is missing",
            ),
            (
                "J 1 node=b:2 list=a:1,b:2 public=",
                Code::Syntax,
                "public= is not an address",
            ),
            (
                "J 1 node=b:2 list=a:1,b:2 public=b:2 secret=",
                Code::Syntax,
                "secret= is not one",
            ),
            (
                "J 1 node=b:2 list=a:1,b:2 public=b:2 secret=s more",
                Code::Syntax,
                "a field too many",
            ),
            (
                "J 1 node=b:2 list=b:2,a:1 public=b:2",
                Code::Syntax,
                "a:1,b:2 here, b:2,a:1 on b:2",
            ),
            (
                "J 1 node=a:1 list=a:1,b:2 public=b:2",
                Code::Syntax,
                "contradict",
            ),
            (
                "J 1 node=x:9 list=a:1,b:2 public=b:2",
                Code::Syntax,
                "x:9, which this node is to be, is not in the list",
            ),
        ] {
            let error = Greeting::parse(line.as_bytes())
                .and_then(|greeting| greeting.members(&same).map(|_| ()))
                .expect_err(line);
            assert_eq!(error.code(), code, "{line}");
            assert!(error.to_string().contains(text), "{line}: {error}");
        }
    }
}
