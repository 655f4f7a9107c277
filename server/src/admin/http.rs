//! Connections of the admin page, with a limit on everything: how many there are, how long a head may take and be, how
//! long a connection lasts. Whoever is too slow, or one too many, loses the connection and nothing else.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::net::TcpListener;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// More connections than this, and the oldest one is ended: so nobody can keep others out by doing nothing.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take to come, and so how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long the head of a request may be, and how many lines.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_LINES: usize = 64;
/// After this time a connection takes no further request; the browser makes another one.
const LIFE: Duration = Duration::from_secs(60);
/// How long the last answer of a connection may take to be read.
const LAST_ANSWER: Duration = Duration::from_secs(10);
/// After an error of accept, which is nearly always a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Takes connections and serves them. Never ends.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the admin page cannot be served: {error}"),
    };
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() == CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let task = tokio::spawn(connection(socket, router.clone()));
        connections.push_back(task.abort_handle());
    }
}

async fn connection(socket: TcpStream, router: Router) {
    // Answers are whole when they are written, so there is nothing to collect.
    let _ = socket.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEAD_LINES)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // A client that breaks off is its own business.
        _ = &mut connection => return,
        () = tokio::time::sleep(LIFE) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
}
