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
use std::sync::Arc;
use std::time::Duration;

/// The page: one file, with its script and its style.
const PAGE: &str = include_str!("page.html");

/// How long a look at the node may take. A list that has to pass over millions of keys takes some seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for whoever wants to know whether the node lives.
const PROBE: Duration = Duration::from_secs(2);

struct App {
    view: ServerView,
    guard: Guard,
}

type Shared = State<Arc<App>>;

/// An answer, or why there is none.
type Answer<T> = Result<T, Refusal>;

pub(super) fn router(view: ServerView, guard: Guard) -> Router {
    let app = Arc::new(App { view, guard });
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
    match app.guard.refuse(request.headers()) {
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
    let text = look(&app, PATIENCE, move |view| metrics::text(view, format)).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// Alive is a node whose thread lets itself be looked at.
async fn health(State(app): Shared) -> Answer<&'static str> {
    look(&app, PROBE, ServerView::snapshot).await?;
    Ok("ok\n")
}

/// Ready is an active node, and a standby that could become one.
async fn readiness(State(app): Shared) -> Answer<String> {
    let node = look(&app, PROBE, ServerView::snapshot).await?;
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
    look(&app, PATIENCE, both).await.map(Json)
}

async fn locks(State(app): Shared, RawQuery(query): RawQuery) -> Answer<Json<Locks>> {
    let query = Query::parse(query.as_deref(), &["prefix", "after", "limit"])?;
    let (prefix, after) = (query.bytes("prefix")?, query.bytes("after")?);
    let limit = query.limit()?;
    let list =
        move |view: &ServerView| view.locks(&prefix.unwrap_or_default(), after.as_deref(), limit);
    look(&app, PATIENCE, list)
        .await
        .map(|page| Json(page.into()))
}

async fn waiters(State(app): Shared, RawQuery(query): RawQuery) -> Answer<Json<Queue>> {
    let query = Query::parse(query.as_deref(), &["key", "limit"])?;
    let key = query.bytes("key")?.filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| "which key? say key= or key_hex=".to_owned())?;
    let limit = query.limit()?;
    let list = move |view: &ServerView| Some(Queue::new(&key, &view.waiters(&key, limit)?));
    look(&app, PATIENCE, list).await.map(Json)
}

async fn not_found() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "there are /, /metrics, /healthz, /readyz, /status.json, /locks.json and /waiters.json here",
    )
}

/// A look at the node on a thread that may wait for it.
async fn look<T: Send + 'static>(
    app: &Arc<App>,
    patience: Duration,
    look: impl FnOnce(&ServerView) -> Option<T> + Send + 'static,
) -> Answer<T> {
    let app = Arc::clone(app);
    let seen = tokio::task::spawn_blocking(move || look(&app.view));
    let unavailable = |text: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text);
    match tokio::time::timeout(patience, seen).await {
        Ok(Ok(Some(seen))) => Ok(seen),
        Ok(Ok(None)) => Err(unavailable("the node does not run (yet, or any more)")),
        Ok(Err(_)) => Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the look at the node has failed; the log says more",
        )),
        Err(_) => Err(unavailable("the node does not answer")),
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
