//! A node inside this process: the public face of [`node`](super).
//!
//! The node runs on a thread of its own, so it works from any async runtime and from none, and a
//! caller that blocks its own thread does not stop it.

use super::error::ServerError;
use super::reserved;
use super::run::{self, End, Prepared};
use super::settings::{ClientAuth, Secret, Settings};
use super::view::{ServerView, Window};
use crate::background;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// A running node. Dropping it stops it and waits until it has ended.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = fairlock::Server::builder().listen("127.0.0.1:0").start_blocking()?;
/// println!("listening on {}", server.address());
/// server.stop_blocking()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it stops the node"]
pub struct Server {
    address: SocketAddr,
    view: ServerView,
    reload: watch::Sender<()>,
    stop: Option<oneshot::Sender<End>>,
    ended: oneshot::Receiver<()>,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
    /// Where the thread is: not in a child that was forked from there.
    process: u32,
}

impl Server {
    /// A node with default settings: on 127.0.0.1:7420, without a folder.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            settings: Settings::default(),
        }
    }

    /// An address on this machine for a node that this process starts later: nobody else can take it until
    /// then. So the nodes of a cluster can be told their addresses before the first of them is started.
    /// Each call gives another one; one that is never used is kept until the process ends.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use fairlock::Server;
    ///
    /// let peers = (0..3)
    ///     .map(|_| Ok(Server::free_address()?.to_string()))
    ///     .collect::<std::io::Result<Vec<String>>>()?;
    /// let nodes = peers
    ///     .iter()
    ///     .map(|node| Server::builder().cluster(&peers, node).start_blocking())
    ///     .collect::<Result<Vec<Server>, _>>()?;
    /// let client = fairlock::blocking::Client::new(peers)?;
    /// let lock = client.acquire("order:42")?;
    /// # drop((lock, nodes));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the operating system says, if it has no address to give.
    pub fn free_address() -> io::Result<SocketAddr> {
        reserved::reserve()
    }

    /// The address that the node listens on, with the port that was found where 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A look at the node for other threads: numbers for metrics, who is active, locks and queues.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = fairlock::Server::builder().listen("127.0.0.1:0").start_blocking()?;
    /// let view = server.view();
    /// std::thread::spawn(move || {
    ///     let held = view.snapshot().map(|node| node.stats.held);
    ///     println!("{held:?} keys are held");
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn view(&self) -> ServerView {
        self.view.clone()
    }

    /// Reads again what may change while the node runs: the certificates and the users. They are read again by themselves, too, soon
    /// after their files have changed; this is for who wants it now. What cannot be used is logged, and what was read before stays in use.
    pub fn reload(&self) {
        self.reload.send_replace(());
    }

    /// Waits until the node has ended, which without [`Server::stop`] takes a bug. Can be cancelled and called again.
    pub async fn ended(&mut self) {
        // An error means that the sender is gone, so the thread is ending too.
        let _ = (&mut self.ended).await;
    }

    /// Stops the node in order: waiting requests hear that they have to look elsewhere, and replies that are
    /// due are written, for at most `drain_timeout`. The node stops even if this future is dropped.
    ///
    /// # Errors
    /// Why the node had ended before, if it had; [`ServerError::Forked`].
    pub async fn stop(mut self) -> Result<(), ServerError> {
        self.leave_to_parent()?;
        self.tell_to_stop(End::Orderly);
        self.ended().await;
        self.join()
    }

    /// As [`Server::stop`], blocking the calling thread.
    ///
    /// # Errors
    /// Why the node had ended before, if it had; [`ServerError::Forked`].
    pub fn stop_blocking(mut self) -> Result<(), ServerError> {
        self.leave_to_parent()?;
        self.tell_to_stop(End::Orderly);
        self.join()
    }

    /// Ends the node at once, as if its process had been killed: nothing is handed over and nobody is told,
    /// so that a test can see what its cluster and its clients make of that.
    ///
    /// # Errors
    /// Why the node had ended before, if it had; [`ServerError::Forked`].
    pub fn kill(mut self) -> Result<(), ServerError> {
        self.leave_to_parent()?;
        self.tell_to_stop(End::Abrupt);
        self.join()
    }

    /// In a forked child: touches nothing of the node, whose thread and wake-ups are its parent's.
    fn leave_to_parent(&mut self) -> Result<(), ServerError> {
        if self.process == process::id() {
            return Ok(());
        }
        std::mem::forget(self.stop.take());
        std::mem::forget(self.thread.take());
        Err(ServerError::Forked)
    }

    fn tell_to_stop(&mut self, end: End) {
        if let Some(stop) = self.stop.take() {
            // An error means that the node has ended already.
            let _ = stop.send(end);
        }
    }

    fn join(&mut self) -> Result<(), ServerError> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(ServerError::Internal(
                "the node's thread panicked".to_owned(),
            )),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.leave_to_parent().is_err() {
            return;
        }
        self.tell_to_stop(End::Orderly);
        if let Err(error) = self.join() {
            tracing::error!("the node had ended: {error}");
        }
    }
}

/// How a node is to run. [`Settings`] explains each setting.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerBuilder {
    settings: Settings,
}

impl ServerBuilder {
    /// Takes all settings from here.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Where clients connect, `host:port`; port 0 takes a free one.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.settings.listen = Some(address.into());
        self
    }

    /// The folder in which the node keeps its term, so that tokens rise over restarts, and its locks.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.data_dir = Some(path.into());
        self.settings.ephemeral = false;
        self
    }

    /// Without a folder; this is the default here, as suits tests.
    pub fn ephemeral(mut self) -> Self {
        self.settings.data_dir = None;
        self.settings.ephemeral = true;
        self
    }

    /// The address that clients are told, where it is not the one the node listens on.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.settings.advertise = Some(address.into());
        self
    }

    /// What every client has to say before it is served.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.settings.secret = Some(Secret::new(secret));
        self
    }

    /// A file that holds the secret.
    pub fn secret_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.secret_file = Some(path.into());
        self
    }

    /// A TOML file with the users that may connect beside those who know the secret, and what each of them may do.
    /// Without a secret only they may. It is read again when it changes.
    pub fn users_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.users_file = Some(path.into());
        self
    }

    /// A certificate (with those that lead to its CA) and its key, in PEM files: from then on the node speaks TLS and nothing else.
    pub fn tls(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.settings.tls_cert = Some(certificate.into());
        self.settings.tls_key = Some(key.into());
        self
    }

    /// The CAs that have to have signed the certificates of clients.
    pub fn tls_client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.tls_client_ca = Some(path.into());
        self
    }

    /// Whether clients have to show a certificate. Without this call they have to where
    /// [`tls_client_ca`](Self::tls_client_ca) is given.
    pub fn tls_client_auth(mut self, wanted: ClientAuth) -> Self {
        self.settings.tls_client_auth = Some(wanted);
        self
    }

    /// Allows to listen beyond loopback without a secret.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.settings.insecure = insecure;
        self
    }

    /// The longest lease a client may ask for.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.settings.max_lease = lease;
        self
    }

    /// How long an orderly stop may take.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// Makes the node one of a cluster: all nodes in the order of their priority, the same list on each,
    /// and which of them this one is. It listens there unless [`listen`](ServerBuilder::listen) says otherwise.
    pub fn cluster<A: AsRef<str>>(
        mut self,
        peers: impl IntoIterator<Item = A>,
        node: impl Into<String>,
    ) -> Self {
        let peers: Vec<A> = peers.into_iter().collect();
        let peers: Vec<&str> = peers.iter().map(AsRef::as_ref).collect();
        self.settings.peers = Some(peers.join(","));
        self.settings.node = Some(node.into());
        self
    }

    /// Starts the node and waits until it serves, or as one of a cluster until it takes connections.
    ///
    /// # Errors
    /// A setting, the address, the data dir or the term file cannot be used; nothing has been changed then.
    pub async fn start(self) -> Result<Server, ServerError> {
        let (sender, started) = oneshot::channel();
        let handles = spawn(self.settings, move |outcome| drop(sender.send(outcome)))?;
        let outcome = started.await;
        handles.server(outcome.ok())
    }

    /// As [`ServerBuilder::start`], blocking the calling thread.
    ///
    /// # Errors
    /// As [`ServerBuilder::start`].
    pub fn start_blocking(self) -> Result<Server, ServerError> {
        let (sender, started) = mpsc::sync_channel(1);
        let handles = spawn(self.settings, move |outcome| drop(sender.send(outcome)))?;
        let outcome = started.recv();
        handles.server(outcome.ok())
    }
}

type Outcome = Result<SocketAddr, ServerError>;

/// What leads to the thread of a node that may not serve yet.
struct Handles {
    window: Window,
    reload: watch::Sender<()>,
    stop: oneshot::Sender<End>,
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<Result<(), ServerError>>,
}

impl Handles {
    fn server(self, outcome: Option<Outcome>) -> Result<Server, ServerError> {
        match outcome {
            Some(Ok(address)) => Ok(Server {
                address,
                view: ServerView::new(self.window, address),
                reload: self.reload,
                stop: Some(self.stop),
                ended: self.ended,
                thread: Some(self.thread),
                process: process::id(),
            }),
            Some(Err(error)) => {
                // It has only its end before it, and the caller shall find nothing left in use.
                let _ = self.thread.join();
                Err(error)
            }
            // It has ended before it could be seen.
            None => Err(match self.thread.join() {
                Ok(Err(error)) => error,
                _ => ServerError::Internal("the node's thread panicked".to_owned()),
            }),
        }
    }
}

fn spawn(
    settings: Settings,
    started: impl FnOnce(Outcome) + Send + 'static,
) -> Result<Handles, ServerError> {
    let (stop, stopped) = oneshot::channel::<End>();
    let (end, ended) = oneshot::channel();
    let (reload, reloads) = watch::channel(());
    let window = Window::new();
    let own_window = window.clone();
    let thread = background::spawn("fairlock-node", move || {
        // Dropped last, so that who waits for the end finds a thread that can be joined at once.
        let _end = end;
        let prepared = match Prepared::new(settings) {
            Ok(prepared) => prepared,
            Err(error) => {
                started(Err(error));
                return Ok(());
            }
        };
        let address = prepared.address();
        let shown = || started(Ok(address));
        run::run(prepared, reloads, &own_window, shown, async {
            // A sender that is gone without a word is a dropped start: nobody wants the node.
            stopped.await.unwrap_or(End::Orderly)
        })
    })?;
    Ok(Handles {
        window,
        reload,
        stop,
        ended,
        thread,
    })
}
