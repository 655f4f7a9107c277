//! Nodes and clients that speak TLS.

use crate::certificates::{Folder, write_all};
use fairlock::{Client, ClientBuilder, Error, Server, ServerBuilder, ServerError};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Far longer than anything takes, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A folder with one certificate of each kind.
pub(crate) struct World {
    pub(crate) folder: Folder,
}

impl World {
    pub(crate) fn new() -> World {
        let folder = Folder::new();
        write_all(|name| folder.file(name));
        World { folder }
    }

    pub(crate) fn builder(&self, identity: &str) -> ServerBuilder {
        let [certificate, key] = self.identity(identity);
        Server::builder()
            .listen("127.0.0.1:0")
            .ephemeral()
            .tls(certificate, key)
    }

    pub(crate) fn identity(&self, name: &str) -> [std::path::PathBuf; 2] {
        [
            self.folder.file(&format!("{name}.pem")),
            self.folder.file(&format!("{name}.key")),
        ]
    }

    pub(crate) fn server(&self) -> Server {
        start(self.builder("server")).expect("it starts")
    }

    /// Options of a client that trusts `ca.pem`.
    pub(crate) fn options(&self, server: &Server) -> ClientBuilder {
        Client::builder()
            .servers(server.address().to_string())
            .ca_file(self.folder.file("ca.pem"))
    }

    pub(crate) fn client(&self, server: &Server) -> Client {
        self.options(server).build().expect("options")
    }

    /// A connection that is spoken to in lines.
    pub(crate) fn peer(&self, server: &Server, ca: &str) -> Result<Peer, std::io::Error> {
        use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.folder.file(ca)).expect("a certificate");
        roots.add(ca).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a channel");
        let socket = TcpStream::connect(server.address())?;
        socket.set_read_timeout(Some(LIMIT))?;
        let mut stream = rustls::StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Peer {
            lines: BufReader::new(stream),
        })
    }
}

pub(crate) fn start(builder: ServerBuilder) -> Result<Server, ServerError> {
    builder.start_blocking()
}

/// Why a client cannot connect; it takes no longer than the three seconds of a try.
pub(crate) fn refused(client: ClientBuilder) -> Error {
    let begin = Instant::now();
    let client = client.build().expect("options");
    let error = client.connected().call().expect_err("no connection");
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    error
}

/// A client that knows lines.
pub(crate) struct Peer {
    pub(crate) lines: BufReader<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>,
}

impl Peer {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let stream = self.lines.get_mut();
        stream.write_all(bytes).expect("the node reads");
        stream.flush().expect("the node reads");
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim_end_matches('\n').to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n").as_bytes());
        self.hear()
    }
}

/// Waits for something that has to come.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}
