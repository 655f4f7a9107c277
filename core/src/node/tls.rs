//! TLS on the node's sockets: handshakes with clients, and with the peers that this node calls; certificates that are read
//! again when their files change. What goes through a connection that is open is the business of `stream`.

use super::connection::Connection;
use super::farewell;
use super::log::now_and_then;
use super::settings::Settings;
use super::state::{Node, Shared, now};
use super::stream::Stream;
use crate::engine::ConnectionId;
use crate::protocol::{Code, Reply};
use crate::tls::{
    Acceptor, Channel, ClientFiles, Clients, Connector, ConnectorError, FileError, Progress,
    ServerFiles, with_room,
};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// How often it is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The first bytes of every TLS connection.
const HANDSHAKE_RECORD: [u8; 2] = [0x16, 0x03];

/// Whether this is how a TLS client begins.
pub(crate) fn is_client_hello(bytes: &[u8]) -> bool {
    bytes.starts_with(&HANDSHAKE_RECORD)
}

/// What connections are accepted with, if the settings ask for TLS.
pub(crate) fn acceptor(settings: &Settings) -> Result<Option<Arc<Acceptor>>, FileError> {
    let (Some(certificate), Some(key)) = (&settings.tls_cert, &settings.tls_key) else {
        return Ok(None);
    };
    let clients = settings.tls_client_ca.as_ref().map(|path| Clients {
        authorities: path.clone(),
        required: settings.wants_client_certificates(),
    });
    let files = ServerFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        clients: clients.filter(|_| settings.looks_at_client_certificates()),
    };
    Acceptor::new(files).map(Arc::new).map(Some)
}

/// What other nodes are called with, if the settings ask for TLS: this node shows its own certificate.
pub(crate) fn connector(settings: &Settings) -> Result<Option<Connector>, ConnectorError> {
    let (Some(certificate), Some(key)) = (&settings.tls_cert, &settings.tls_key) else {
        return Ok(None);
    };
    let authorities = settings.tls_ca.as_ref().or(settings.tls_client_ca.as_ref());
    let files = ClientFiles {
        authorities: authorities.cloned(),
        identity: Some((certificate.clone(), key.clone())),
    };
    Connector::new(files, None).map(Some)
}

/// Reads certificates again when their files change, or when told so. Never ends.
pub(crate) async fn watch(acceptor: Arc<Acceptor>, mut reload: watch::Receiver<()>) {
    loop {
        let told = tokio::select! {
            told = reload.changed() => told.is_ok(),
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let acceptor = acceptor.clone();
        // On another thread, because a disk may hang.
        let outcome = tokio::task::spawn_blocking(move || acceptor.reload(told)).await;
        match outcome {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => tracing::info!(
                "the TLS certificates have been read again; connections that are open stay as they are"
            ),
            Ok(Err(error)) => tracing::error!(
                "TLS file {error}; the certificates that were read before stay in use"
            ),
            Err(error) => tracing::error!("the TLS certificates cannot be read: {error}"),
        }
        if reload.has_changed().is_err() {
            // Nobody is left to tell.
            std::future::pending::<()>().await;
        }
    }
}

/// Makes a connection secure that a client has opened. `None` if that does not come about; the client has been told why
/// where it can understand it.
pub(crate) async fn accept(
    node: &Shared,
    acceptor: &Acceptor,
    socket: TcpStream,
    address: SocketAddr,
) -> Option<Stream> {
    // An error means that the client has gone in the meantime.
    let mut stream = Stream::new(socket, address).ok()?;
    let opened = tokio::time::timeout(HANDSHAKE_TIMEOUT, open(node, acceptor, &mut stream)).await;
    let why = match opened {
        Ok(Ok(channel)) => return Some(stream.secured(channel)),
        Ok(Err(Unopened::Gone)) => return None,
        Ok(Err(Unopened::Plain)) => {
            let mut connection = Connection::new(stream, now());
            connection.outbox.keep(&plain_refusal(), 0);
            complain(node, address, "it does not speak TLS, as this port does");
            farewell::see_off(node, &mut connection, true).await;
            return None;
        }
        Ok(Err(Unopened::Failed(why))) => {
            complain(node, address, &why);
            // So that the alert is not cut off by what the client is still sending.
            farewell::see_off(node, &mut Connection::new(stream, now()), true).await;
            return None;
        }
        Err(_) => format!("no TLS handshake within {} s", HANDSHAKE_TIMEOUT.as_secs()),
    };
    complain(node, address, &why);
    None
}

/// Why a connection has not become secure.
enum Unopened {
    /// The client has said nothing and gone.
    Gone,
    /// It speaks without TLS.
    Plain,
    Failed(String),
}

async fn open(
    node: &Shared,
    acceptor: &Acceptor,
    stream: &mut Stream,
) -> Result<Box<Channel>, Unopened> {
    let socket = stream.socket_mut();
    let mut first = [0];
    match socket.peek(&mut first).await {
        Ok(0) | Err(_) => return Err(Unopened::Gone),
        Ok(_) if first[0] != HANDSHAKE_RECORD[0] => return Err(Unopened::Plain),
        Ok(_) => {}
    }
    let mut channel = Box::new(acceptor.channel().map_err(Unopened::Failed)?);
    in_turns(node, &mut channel, socket)
        .await
        .map_err(|error| Unopened::Failed(error.to_string()))?;
    Ok(channel)
}

/// Does a handshake so that others have their turn between a costly step of it and that of the next one: a thousand clients
/// that come in the same moment would hold up everybody for half a second. Which step is costly the client decides, with
/// where it cuts what it sends; so each has its turn.
async fn in_turns(node: &Shared, channel: &mut Channel, socket: &TcpStream) -> io::Result<()> {
    let turns = node.lock().handshaking.clone();
    loop {
        let turn = turns.acquire().await;
        let progress = channel.handshake(
            |buffer| socket.try_read(buffer),
            |records| socket.try_write(records),
        );
        tokio::task::yield_now().await;
        drop(turn);
        match progress? {
            Progress::Done => return Ok(()),
            Progress::Reads => socket.readable().await?,
            Progress::Writes => socket.writable().await?,
        }
    }
}

/// Does a handshake without waiting for a turn. Its time is limited by the caller.
pub(crate) async fn handshake(channel: &mut Channel, socket: &mut TcpStream) -> io::Result<()> {
    poll_fn(|cx| {
        loop {
            let shared = std::cell::RefCell::new(&mut *socket);
            let progress = channel.handshake(
                |buffer| receive(&mut shared.borrow_mut(), cx, buffer),
                |records| shared.borrow().try_write(records),
            )?;
            match progress {
                Progress::Done => return Poll::Ready(Ok(())),
                // The socket has been asked, so it wakes this task.
                Progress::Reads => return Poll::Pending,
                Progress::Writes => ready!(socket.poll_write_ready(cx))?,
            }
        }
    })
    .await
}

/// As [`Stream::poll_read`], through a channel.
pub(super) fn poll_read(
    channel: &mut Channel,
    socket: &mut TcpStream,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    if channel.holds_plain() {
        return Poll::Ready(Ok(channel.take_plain(buffer)));
    }
    loop {
        if channel.has_ended() {
            return Poll::Ready(Ok(0));
        }
        let step = with_room(|room| match receive(socket, cx, room.receive()) {
            // An end without a goodbye cuts no line that counts: one that has not ended is not handled.
            Ok(0) => Ok(None),
            Ok(count) => channel.take(room, count, buffer).map(Some),
            Err(error) => Err(error),
        });
        match step {
            Ok(None) => return Poll::Ready(Ok(0)),
            Ok(Some(0)) => {}
            Ok(Some(count)) => return Poll::Ready(Ok(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Reads what is there; sees to it that the task is woken where nothing is.
fn receive(socket: &mut TcpStream, cx: &mut Context<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(buffer);
    match Pin::new(socket).poll_read(cx, &mut buffer) {
        Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Says goodbye.
pub(super) fn poll_close(
    channel: &mut Channel,
    socket: &TcpStream,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !channel.close(|records| socket.try_write(records))? {
        ready!(socket.poll_write_ready(cx))?;
    }
    Poll::Ready(Ok(()))
}

/// What a client without TLS is told, in the language that it understands.
fn plain_refusal() -> Vec<u8> {
    refusal("this port speaks TLS; set ca_file (or tls) of the client")
}

fn refusal(text: &str) -> Vec<u8> {
    let mut line = Vec::new();
    Reply::Refused {
        operation: None,
        key: b"-",
        code: Code::Syntax.as_str(),
        tag: None,
        text,
    }
    .encode(&mut line);
    line
}

fn complain(node: &Shared, address: SocketAddr, why: &str) {
    node.lock().counters.not_secured += 1;
    say(address, why);
}

fn say(address: SocketAddr, why: &str) {
    now_and_then!(warn, "no connection with {address}: {why}");
}

impl Node {
    /// A client speaks TLS to a port that does not. It cannot read the answer as such, but it sees that this is no TLS.
    #[cold]
    pub(crate) fn refuse_tls(&mut self, id: ConnectionId) {
        let line = refusal("this port does not speak TLS (tls_cert, tls_key)");
        self.replies.extend_from_slice(&line);
        self.counters.not_secured += 1;
        if let Some(connection) = self.connections.get_mut(id) {
            let address = connection.stream.peer_address();
            let why = "it speaks TLS, and this port does not (tls_cert, tls_key)";
            say(address, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::engine_settings;
    use super::super::terms::Terms;
    use super::*;
    use crate::engine::Engine;
    use std::io::{Read, Write};
    use tokio::net::TcpListener;

    /// An acceptor, and how a client begins that trusts it.
    fn world() -> (Acceptor, Vec<u8>) {
        let (acceptor, connector) = crate::tls::ends("turns");
        let mut hello = Vec::new();
        let mut client = connector.channel("localhost:1").expect("a channel");
        let nothing = |_: &mut [u8]| Err(io::ErrorKind::WouldBlock.into());
        let begun = client.handshake(nothing, |records| {
            hello.extend_from_slice(records);
            Ok(records.len())
        });
        begun.expect("it begins");
        (acceptor, hello)
    }

    async fn until_read(socket: &std::net::TcpStream) {
        while socket.peek(&mut [0]).is_ok() {
            tokio::task::yield_now().await;
        }
    }

    /// Goal: the costly step has its turn wherever a client cuts its hello. Method: a hello in two parts, and a turn that is
    /// somebody else's when the second one comes.
    #[test]
    fn a_handshake_goes_on_in_its_turn_only() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let (acceptor, hello) = world();
            let settings = Settings::default();
            let engine = Engine::new(engine_settings(&settings), 1);
            let node = Shared::new(Node::new(settings, None, engine, Terms::new(None, 1)));
            let turns = node.lock().handshaking.clone();
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            let mut client = std::net::TcpStream::connect(address).expect("it listens");
            let (socket, address) = listener.accept().await.expect("a client");
            let socket = socket.into_std().expect("a socket");
            let seen = socket.try_clone().expect("a descriptor");
            let socket = TcpStream::from_std(socket).expect("a socket");
            let (first, second) = hello.split_at(hello.len() / 2);
            client.write_all(first).expect("it lives");
            tokio::spawn(async move { accept(&node, &acceptor, socket, address).await });
            until_read(&seen).await;
            let turn = turns.acquire().await.expect("it is never closed");
            client.write_all(second).expect("it lives");
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
            assert!(seen.peek(&mut [0]).is_ok(), "it is not its turn");
            drop(turn);
            until_read(&seen).await;
            let mut answer = [0];
            client.read_exact(&mut answer).expect("it answers");
            assert_eq!(answer[0], HANDSHAKE_RECORD[0]);
        });
    }
}
