//! Who speaks to the engine.

use crate::protocol::{ClientId, NameRef};

/// Names a connection. Indices are dense and used again, so they can index the caller's own table;
/// the generation tells a connection from those that had its index before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    /// The place in a table of connections.
    pub index: u32,
    /// Rises with every connection.
    pub generation: u32,
}

/// Who made a request: shared by all requests of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The client instance, if its hello named it.
    pub client: Option<ClientId>,
    name: Box<[u8]>,
    address: Box<str>,
}

impl Owner {
    /// Takes what the hello said and where the connection came from.
    #[must_use]
    pub fn new(client: Option<ClientId>, name: NameRef<'_>, address: &str) -> Owner {
        Owner {
            client,
            name: name.spelling().into(),
            address: address.into(),
        }
    }

    /// What the client calls itself.
    #[must_use]
    pub fn name(&self) -> NameRef<'_> {
        NameRef::parse(&self.name).expect("it is the spelling of a name since `new`")
    }

    /// Where the connection came from, `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}
