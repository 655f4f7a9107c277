//! What has gone wrong with a connection. People read the text; what follows from it is decided by its cause alone.

/// Why a connection is down, or a try over one has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(super) cause: Cause,
    pub(super) text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// There is somebody, and TLS with him has failed.
    Tls,
    /// The server refused this client, with this code.
    Refused(String),
    /// No connection, one that broke, a server that has nothing to give.
    Other,
}

impl Failure {
    pub(crate) fn of_tls(text: impl Into<String>) -> Failure {
        Failure {
            cause: Cause::Tls,
            text: text.into(),
        }
    }

    pub(super) fn refused(code: &str, text: String) -> Failure {
        Failure {
            cause: Cause::Refused(code.to_owned()),
            text,
        }
    }

    pub(super) fn is_of_tls(&self) -> bool {
        self.cause == Cause::Tls
    }

    /// The code, if the server refused this client.
    pub(super) fn code(&self) -> Option<&str> {
        match &self.cause {
            Cause::Refused(code) => Some(code),
            Cause::Tls | Cause::Other => None,
        }
    }

    /// The same, told with more words.
    pub(crate) fn told(mut self, tell: impl FnOnce(String) -> String) -> Failure {
        self.text = tell(self.text);
        self
    }

    /// One for several, of TLS if one of them is.
    pub(crate) fn of_all(failures: Vec<Failure>) -> Failure {
        let of_tls = failures.iter().any(Failure::is_of_tls);
        let texts: Vec<String> = failures.into_iter().map(|failure| failure.text).collect();
        let text = texts.join(", ");
        if of_tls {
            Failure::of_tls(text)
        } else {
            text.into()
        }
    }
}

/// Of no cause that matters.
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure {
            cause: Cause::Other,
            text,
        }
    }
}
