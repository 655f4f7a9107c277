//! What is asked for, and what is answered. Only looking: GET and HEAD.

use super::answers::{Locks, Problem, Queue, Status};
use super::guard::Guard;
use super::metrics::{self, Format};
use super::query::Query;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use fairlock::node::ServerView;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The page: one file, with its script and its style.
const PAGE: &str = include_str!("page.html");

/// How long a look at the node may take. A list that has to pass over millions of keys takes some seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for whoever wants to know whether the node lives.
const PROBE: Duration = Duration::from_secs(2);
/// How long a look may wait for others of its kind. Whoever waits longer is told so, and may ask again.
const TURN: Duration = Duration::from_secs(1);

/// How many looks of each kind may be under way. Each has a thread, so that no number of lists keeps a probe waiting: the
/// platform would end a node for that which does its work.
const PROBES: usize = 1;
const FIGURES: usize = 1;
const LISTS: usize = 2;
/// How many threads that are.
pub(super) const LOOKS_AT_ONCE: usize = PROBES + FIGURES + LISTS;

struct App {
    view: ServerView,
    guard: Guard,
    probes: Looks,
    figures: Looks,
    lists: Looks,
}

impl App {
    fn new(view: ServerView, guard: Guard) -> App {
        App {
            view,
            guard,
            probes: Looks::new(PROBES, PROBE),
            figures: Looks::new(FIGURES, PATIENCE),
            lists: Looks::new(LISTS, PATIENCE),
        }
    }
}

/// Looks of one kind.
struct Looks {
    turns: Arc<Semaphore>,
    patience: Duration,
}

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

type Shared = State<Arc<App>>;

/// An answer, or why there is none.
type Answer<T> = Result<T, Refusal>;

pub(super) fn router(view: ServerView, guard: Guard) -> Router {
    let app = Arc::new(App::new(view, guard));
    let guarded = Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/status.json", get(status))
        .route("/locks.json", get(locks))
        .route("/waiters.json", get(waiters))
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(app.clone(), admit));
    // For those who start and stop nodes, and have no secret.
    Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .merge(guarded)
        .layer(middleware::map_response(harden))
        .with_state(app)
}

async fn admit(State(app): Shared, request: Request, next: Next) -> Response {
    let peer = request.extensions().get().map(|Peer(peer)| *peer);
    match app.guard.refuse(request.headers(), peer) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Nothing of an answer is kept, framed, guessed at or read by other sites; and but for the page's own script nothing runs.
async fn harden(mut response: Response) -> Response {
    const FIXED: [(HeaderName, &str); 6] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    let headers = response.headers_mut();
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'",
        ));
    response
}

/// The page, whose script and style are let run by a number that nobody can guess.
async fn page() -> Answer<Response> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let page = Html(PAGE.replace("{{nonce}}", &nonce));
    Ok(([(header::CONTENT_SECURITY_POLICY, policy)], page).into_response())
}

async fn metrics(State(app): Shared, headers: HeaderMap) -> Answer<Response> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let refused = app.guard.refused();
    let look = move |view: &ServerView| metrics::text(view, format, refused);
    let text = app.figures.look(&app.view, look).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// Alive is a node whose thread lets itself be looked at.
async fn health(State(app): Shared) -> Answer<&'static str> {
    app.probes.look(&app.view, ServerView::snapshot).await?;
    Ok("ok\n")
}

/// Ready is an active node, and a standby that could become one.
async fn readiness(State(app): Shared) -> Answer<String> {
    let node = app.probes.look(&app.view, ServerView::snapshot).await?;
    match node.not_ready {
        // It serves as ever; taking its clients away would help nobody.
        None => Ok(match node.not_kept {
            None => format!("ready: {}\n", node.role),
            Some(reason) => format!("ready: {}, but {reason}\n", node.role),
        }),
        Some(reason) => Err(Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            text: format!("not ready: {reason}\n"),
            plain: true,
        }),
    }
}

async fn status(State(app): Shared) -> Answer<Json<Status>> {
    let both = |view: &ServerView| {
        let busiest = view.busiest()?;
        Some(Status::new(&view.snapshot()?, &busiest))
    };
    app.figures.look(&app.view, both).await.map(Json)
}

async fn locks(State(app): Shared, RawQuery(query): RawQuery) -> Answer<Json<Locks>> {
    let query = Query::parse(query.as_deref(), &["prefix", "after", "limit"])?;
    let (prefix, after) = (query.bytes("prefix")?, query.bytes("after")?);
    let limit = query.limit()?;
    let list =
        move |view: &ServerView| view.locks(&prefix.unwrap_or_default(), after.as_deref(), limit);
    let page = app.lists.look(&app.view, list).await?;
    Ok(Json(page.into()))
}

async fn waiters(State(app): Shared, RawQuery(query): RawQuery) -> Answer<Json<Queue>> {
    let query = Query::parse(query.as_deref(), &["key", "limit"])?;
    let key = query.bytes("key")?;
    let key = key.ok_or_else(|| "which key? say key= or key_hex=".to_owned())?;
    let limit = query.limit()?;
    let list = move |view: &ServerView| Some(Queue::new(&key, &view.waiters(&key, limit)?));
    app.lists.look(&app.view, list).await.map(Json)
}

async fn not_found() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "there are /, /metrics, /healthz, /readyz, /status.json, /locks.json and /waiters.json here",
    )
}

impl Looks {
    fn new(at_once: usize, patience: Duration) -> Looks {
        Looks {
            turns: Arc::new(Semaphore::new(at_once)),
            patience,
        }
    }

    /// A look at the node on a thread that may wait for it. Whoever asked and hangs up, or waits no longer, ends it at its
    /// next step.
    async fn look<T: Send + 'static>(
        &self,
        view: &ServerView,
        look: impl FnOnce(&ServerView) -> Option<T> + Send + 'static,
    ) -> Answer<T> {
        let unavailable = |text: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text);
        let Ok(Ok(turn)) = timeout(TURN, Arc::clone(&self.turns).acquire_owned()).await else {
            return Err(unavailable("others are being answered; ask again"));
        };
        // Dropped with this future, whatever ends it.
        let asker = Arc::new(());
        let view = view.while_asked(&asker);
        let seen = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            look(&view)
        });
        match timeout(self.patience, seen).await {
            Ok(Ok(Some(seen))) => Ok(seen),
            Ok(Ok(None)) => Err(unavailable("the node does not run (yet, or any more)")),
            Ok(Err(_)) => Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the look at the node has failed; the log says more",
            )),
            Err(_) => Err(unavailable("the node does not answer")),
        }
    }
}

/// Why there is no answer.
struct Refusal {
    status: StatusCode,
    text: String,
    /// For probes, which show the text as it is.
    plain: bool,
}

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Refusal {
        Refusal {
            status,
            text: text.into(),
            plain: false,
        }
    }
}

/// A query that cannot be used.
impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, text)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        if self.plain {
            (self.status, self.text).into_response()
        } else {
            (self.status, Json(Problem { error: self.text })).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Goal: lists, however many are asked for, keep no probe waiting; and one that nobody waits for any more ends.
    /// Method: as many lists as there may be that last until they see nothing any more.
    #[test]
    fn lists_keep_no_probe_waiting_and_end_when_nobody_asks_for_them() {
        let server = fairlock::Server::builder()
            .listen("127.0.0.1:0")
            .ephemeral()
            .start_blocking()
            .expect("it starts");
        let app = Arc::new(App::new(server.view(), Guard::new(None, "127.0.0.1:0")));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(LOOKS_AT_ONCE)
            .build()
            .expect("a runtime");
        let (began, begins) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        runtime.block_on(async {
            let list = || {
                let (app, began, ended) = (Arc::clone(&app), began.clone(), ended.clone());
                tokio::spawn(async move {
                    let endless = move |view: &ServerView| {
                        began.send(()).expect("it is waited for");
                        while view.snapshot().is_some() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        ended.send(()).expect("it is waited for");
                        None::<()>
                    };
                    app.lists.look(&app.view, endless).await.map(drop)
                })
            };
            let under_way: Vec<_> = (0..LISTS).map(|_| list()).collect();
            // The lists begin on their own threads once this one has let them.
            for _ in 0..LISTS {
                tokio::task::yield_now().await;
                begins.recv_timeout(LIMIT).expect("it begins");
            }
            let one_more = app.lists.look(&app.view, |_| Some(())).await;
            let refusal = one_more.expect_err("there are enough of them");
            assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refusal.text, "others are being answered; ask again");
            let probe = app.probes.look(&app.view, ServerView::snapshot).await;
            assert!(probe.is_ok());
            let figures = app.figures.look(&app.view, ServerView::snapshot).await;
            assert!(figures.is_ok());
            // Who asked hangs up.
            for list in under_way {
                list.abort();
                assert!(list.await.is_err_and(|error| error.is_cancelled()));
            }
            for _ in 0..LISTS {
                ends.recv_timeout(LIMIT).expect("it ends");
            }
            let next = app.lists.look(&app.view, |_| Some(())).await;
            assert!(next.is_ok(), "the turns are free again");
        });
        server.stop_blocking().expect("it stops");
    }
}
