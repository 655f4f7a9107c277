//! From the options of a client command to a client.

use crate::arguments::Connection;
use crate::exit::Failure;
use fairlock::{Client, ClientBuilder};

impl Connection {
    /// The client that these options describe. Does not wait for the network.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(self.builder().build()?)
    }

    /// A client of one server of the list.
    pub(crate) fn client_of(&self, server: &str) -> Result<Client, Failure> {
        Ok(self.builder().servers(server).build()?)
    }

    /// The servers as the user gave them, one by one.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let list = self.servers.as_deref().unwrap_or("127.0.0.1:7420");
        let addresses = list.split(',').map(|address| address.trim().to_owned());
        addresses.collect()
    }

    fn builder(&self) -> ClientBuilder {
        let mut builder = Client::builder();
        if let Some(servers) = &self.servers {
            builder = builder.servers(servers);
        }
        // The library reads the environment by itself and knows what beats what there; only an
        // argument has to be told to it.
        match &self.secret_file {
            Some(path)
                if std::env::var_os("FAIRLOCK_SECRET_FILE").as_deref()
                    != Some(path.as_os_str()) =>
            {
                builder.secret_file(path)
            }
            _ => builder,
        }
    }
}
