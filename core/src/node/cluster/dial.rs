//! Making a link: a connection, the first line, and its answer.
//!
//! Where a network swallows what is sent, a fresh connection finds out sooner than the old one that it
//! works again; so a new one is tried at short intervals while the ones before are still waited for.

use crate::cluster::is_welcome;
use crate::node::stream::Stream;
use crate::node::tls::handshake;
use crate::protocol::{Reply, Split, split};
use crate::tls::Connector;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Why there is no link.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody listens there.
    Refused,
    /// Somebody took the connection and ended it before the answer, as a node does that is just ending.
    CutShort,
    /// No answer in time, or a network that leads nowhere.
    Silent,
    /// Its name leads nowhere, in the words of the system.
    NotFound(String),
    /// Somebody listens who is no node.
    NoNode(String),
    /// A node is there that does not want this one as a peer, or cannot be talked to safely.
    Rejected(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::Refused,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof => Failure::CutShort,
            _ => Failure::Silent,
        }
    }
}

/// Makes a link to `address` within twice `limit`: once for the connection, once for TLS and the answer.
pub(super) async fn dial(
    address: &str,
    connector: Option<&Connector>,
    greeting: &[u8],
    retry: Duration,
    limit: Duration,
) -> Result<Stream, Failure> {
    let socket = timeout(limit, connect(address, retry))
        .await
        .unwrap_or(Err(Failure::Silent))?;
    let peer = socket.peer_addr()?;
    if socket.local_addr().is_ok_and(|own| own == peer) {
        // Two connects that met in one port of this machine: nobody listens there.
        return Err(Failure::Refused);
    }
    let mut stream = Stream::new(socket, peer)?;
    let answer = timeout(limit, async {
        if let Some(connector) = connector {
            stream = secure(stream, connector, address).await?;
        }
        let line = introduce(&mut stream, greeting).await?;
        Ok((stream, line))
    });
    let (stream, line) = answer.await.unwrap_or(Err(Failure::Silent))?;
    if is_welcome(&line) {
        return Ok(stream);
    }
    Err(match Reply::parse(&line) {
        Some(Reply::Refused { text, .. }) => Failure::Rejected(text.to_owned()),
        _ => Failure::NoNode("its answer is not one of a fairlock node".to_owned()),
    })
}

async fn secure(
    mut stream: Stream,
    connector: &Connector,
    address: &str,
) -> Result<Stream, Failure> {
    let mut channel = Box::new(connector.channel(address).map_err(Failure::Rejected)?);
    match handshake(&mut channel, stream.socket_mut()).await {
        Ok(()) => Ok(stream.secured(channel)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Failure::Rejected(match connector.complaint() {
                Some(complaint) => {
                    format!("{error} (and a changed file is not used: {complaint})")
                }
                None => error.to_string(),
            }))
        }
        Err(error) => Err(error.into()),
    }
}

/// The first connection that is made, of several that are tried one after the other.
async fn connect(address: &str, retry: Duration) -> Result<TcpStream, Failure> {
    let mut tries = JoinSet::new();
    loop {
        let target = address.to_owned();
        tries.spawn(async move { connect_once(&target).await });
        tokio::select! {
            Some(Ok(outcome)) = tries.join_next() => match outcome {
                Ok(socket) => return Ok(socket),
                Err(failure) => return Err(failure),
            },
            () = sleep(retry) => {}
        }
    }
}

/// Tries the addresses of a name one after the other.
async fn connect_once(address: &str) -> Result<TcpStream, Failure> {
    let found = lookup_host(address).await;
    let found = found.map_err(|error| Failure::NotFound(error.to_string()))?;
    let mut failure = Failure::NotFound("the name has no address".to_owned());
    for address in found {
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// Says who this is, and returns the line that comes back.
async fn introduce(stream: &mut Stream, greeting: &[u8]) -> io::Result<Vec<u8>> {
    let mut sent = 0;
    while sent < greeting.len() {
        poll_fn(|cx| stream.poll_writable(cx)).await?;
        sent += stream.write(&greeting[sent..])?;
    }
    let mut answer = Vec::new();
    let mut buffer = [0; 512];
    loop {
        match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&buffer[..count]),
        }
        match split(&answer) {
            Split::Line { line, .. } => return Ok(line.to_vec()),
            Split::Partial => {}
            Split::TooLong => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;
    use std::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(30);

    /// What comes of a link to a listener that `answers` each connection in its way.
    fn failure_of(answers: impl FnOnce(TcpListener) + Send + 'static) -> Failure {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let answering = std::thread::spawn(move || answers(listener));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let link = runtime.block_on(dial(&address, None, b"a line\n", LIMIT, LIMIT));
        answering.join().expect("it does not panic");
        link.expect_err("nobody answers")
    }

    #[test]
    fn a_name_that_leads_nowhere_is_told_in_the_words_of_the_system() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let link = dial("no-such-host.invalid:1", None, b"a line\n", LIMIT, LIMIT);
        let failure = runtime.block_on(link).expect_err("nobody has that name");
        assert!(
            matches!(&failure, Failure::NotFound(text) if !text.is_empty()),
            "{failure:?}"
        );
    }

    /// A node that is killed closes its links and its listener one after the other. Who calls in between
    /// must not take that for silence, which is waited out.
    #[test]
    fn a_connection_that_ends_before_the_answer_is_not_taken_for_silence() {
        let ended = failure_of(|listener| {
            let (mut connection, _) = listener.accept().expect("it calls");
            // Read, so that the end is an orderly one.
            let mut line = [0; 7];
            io::Read::read_exact(&mut connection, &mut line).expect("it speaks");
        });
        assert!(matches!(ended, Failure::CutShort), "{ended:?}");
        let reset = failure_of(|listener| {
            let (connection, _) = listener.accept().expect("it calls");
            set_socket_linger(&connection, Some(Duration::ZERO)).expect("a socket");
        });
        assert!(matches!(reset, Failure::CutShort), "{reset:?}");
    }
}
