//! The codes of `E`: why a request was refused.

use std::fmt;

/// Why a request was refused. Nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// Unknown operation, missing or extra field, not a number, a late or second hello.
    Syntax,
    /// Hello with an unknown version; the text names the known ones.
    Version,
    /// The key is out of its limits.
    Key,
    /// The lease is out of its limits.
    Lease,
    /// The wait is out of its limits.
    Wait,
    /// A line over 4096 bytes.
    TooLong,
    /// Missing or wrong secret, or no hello where one is needed.
    Auth,
    /// This user may not touch this key.
    Denied,
    /// A limit is reached; the text names it.
    Busy,
    /// No node is active and none became so in time.
    Unavailable,
    /// A bug; logged on the server with the same text.
    Internal,
}

impl Code {
    /// Every code, in the order of the protocol page.
    pub const ALL: [Code; 11] = [
        Code::Syntax,
        Code::Version,
        Code::Key,
        Code::Lease,
        Code::Wait,
        Code::TooLong,
        Code::Auth,
        Code::Denied,
        Code::Busy,
        Code::Unavailable,
        Code::Internal,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::Syntax => "syntax",
            Code::Version => "version",
            Code::Key => "key",
            Code::Lease => "lease",
            Code::Wait => "wait",
            Code::TooLong => "toolong",
            Code::Auth => "auth",
            Code::Denied => "denied",
            Code::Busy => "busy",
            Code::Unavailable => "unavailable",
            Code::Internal => "internal",
        }
    }

    /// Whether the server closes the connection after the reply.
    #[must_use]
    pub const fn closes(self) -> bool {
        matches!(self, Code::Version | Code::TooLong | Code::Auth)
    }

    /// The code that a word of the wire names; words of later versions name none.
    #[must_use]
    pub fn parse(word: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
