//! Connections of the admin page, with a limit on everything: how many there are, how long a head may take and be, how
//! long a connection lasts. Whoever is too slow, or one too many, loses the connection and nothing else.

use super::routes::Peer;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// More connections than this, and the oldest one that is idle is ended, or where none is the oldest: so nobody can keep
/// others out by doing nothing.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take to come, and so how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long the head of a request may be, and how many lines.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_LINES: usize = 64;
/// For how long an answer counts as being read. Longer ones are read in pieces of which nobody here knows.
const READING: Duration = Duration::from_secs(2);
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
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        connections.retain(|connection| !connection.task.is_finished());
        if connections.len() == CONNECTIONS {
            let idle = |connection: &Connection| connection.activity.is_idle(Instant::now());
            let next = connections.iter().position(idle).unwrap_or(0);
            if let Some(connection) = connections.remove(next) {
                connection.task.abort();
            }
        }
        let activity = Arc::new(Activity::default());
        let router = watched(router.clone(), Arc::clone(&activity), peer);
        let task = tokio::spawn(connection(socket, router)).abort_handle();
        connections.push_back(Connection { task, activity });
    }
}

/// A connection, the oldest first.
struct Connection {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// What a connection is at.
#[derive(Default)]
struct Activity(Mutex<Stage>);

#[derive(Default)]
enum Stage {
    /// No request has come.
    #[default]
    Silent,
    /// A request is being answered.
    Asked,
    /// An answer was made, and may still be on its way.
    Answered(Instant),
}

impl Activity {
    fn enter(&self, stage: Stage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    fn is_idle(&self, now: Instant) -> bool {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Silent => true,
            Stage::Asked => false,
            Stage::Answered(at) => now.saturating_duration_since(at) >= READING,
        }
    }
}

/// The router of one connection, which says what that one is at and where it comes from.
fn watched(router: Router, activity: Arc<Activity>, peer: SocketAddr) -> Router {
    let watch = move |mut request: Request, next: Next| {
        let activity = Arc::clone(&activity);
        request.extensions_mut().insert(Peer(peer));
        async move {
            activity.enter(Stage::Asked);
            let answer = next.run(request).await;
            activity.enter(Stage::Answered(Instant::now()));
            answer
        }
    };
    router.layer(middleware::from_fn(watch))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_unless_its_request_is_answered_or_the_answer_just_made() {
        let activity = Activity::default();
        let now = Instant::now();
        assert!(activity.is_idle(now));
        activity.enter(Stage::Asked);
        assert!(!activity.is_idle(now + LIFE));
        activity.enter(Stage::Answered(now));
        assert!(!activity.is_idle(now));
        assert!(activity.is_idle(now + READING));
    }
}
