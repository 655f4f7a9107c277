//! From settings to a serving node: what has to be there first, and how it begins and ends.

use super::accept;
use super::alarm::Alarm;
use super::clock;
use super::cluster::{self, Cluster};
use super::data_dir::DataDir;
use super::descriptors;
use super::error::ServerError;
use super::journal::{self, Found, Journal, Recovered};
use super::log::now_and_then;
use super::reserved;
use super::secret_file::read_secret;
use super::settings::{JournalSync, Settings};
use super::spin;
use super::state::{Node, Shared, engine_settings, millis};
use super::term::{self, Wall};
use super::term_file;
use super::terms::{SLOT, Terms, first_counter};
use super::timers;
use super::tls;
use super::users::{self, Users, UsersFile};
use super::view::Window;
use crate::cluster::{Beginning, Copy, Event, Members};
use crate::engine::Engine;
use crate::protocol::Role;
use crate::tls::{Acceptor, Connector};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A node that has all it needs and does not serve yet.
pub(crate) struct Prepared {
    settings: Settings,
    listener: TcpListener,
    address: SocketAddr,
    data_dir: Option<Arc<DataDir>>,
    /// With the state that stood in the journal.
    engine: Engine,
    journal: Option<Journal>,
    /// What there was in it, if there was one.
    recovered: Option<Recovered>,
    members: Option<Members>,
    /// The first term of a lone node; what is on disk, of one with peers.
    term: u32,
    acceptor: Option<Arc<Acceptor>>,
    users: Option<(UsersFile, Users)>,
    /// With what peers are called.
    connector: Option<Connector>,
}

impl Prepared {
    /// Checks, binds, locks and writes, in this order, so that a node that cannot start changes nothing.
    pub(crate) fn new(mut settings: Settings) -> Result<Prepared, ServerError> {
        settings.check()?;
        read_secret_files(&mut settings)?;
        let members = settings.members()?;
        let acceptor = tls::acceptor(&settings)?;
        let users = match &settings.users_file {
            Some(path) => Some(UsersFile::open(path.clone(), settings.secret.as_ref())?),
            None => None,
        };
        let calls_peers = members.is_some() || settings.tls_ca.is_some();
        let connector = match calls_peers {
            true => tls::connector(&settings)?,
            false => None,
        };
        let listener = bind(&settings.addresses()?)?;
        let address = listener.local_addr()?;
        let data_dir = settings
            .data_dir
            .as_deref()
            .map(|path| DataDir::open(path).map(Arc::new))
            .transpose()?;
        let mut known = match &data_dir {
            Some(dir) => term_file::read(dir)?.unwrap_or(0),
            None => 0,
        };
        let name = members.as_ref().map_or(journal::ALONE, |members| {
            members.address(members.own()).unwrap_or_default()
        });
        let fresh = || Engine::new(engine_settings(&settings), RandomState::new().hash_one(0));
        let found = match &data_dir {
            Some(dir) if settings.keep_state => recover(dir, name, fresh)?,
            _ => None,
        };
        let highest = found
            .as_ref()
            .and_then(|found| found.engine.highest_token());
        if let Some(token) = highest {
            // The file with the term may have been lost.
            known = known.max((token.get() >> 32) as u32);
        }
        let wall = clock::wall();
        if wall == Wall::Absurd {
            tracing::warn!("the wall clock is beyond 2090 and does not count for terms");
        }
        let next = term::next_term(known, wall).ok_or(ServerError::TermsUsedUp { last: known })?;
        // With peers, whether it opens a term at all is decided later.
        let term = if members.is_some() { known } else { next };
        match &data_dir {
            Some(_) if members.is_some() => {}
            Some(dir) => {
                term_file::write(dir, term)
                    .map_err(|source| not_writable(dir.file("term"), source))?;
            }
            None => tracing::warn!(
                "without a data dir: a restart frees every lock, and tokens rise over restarts only as long as the wall clock does"
            ),
        }
        let journal = match &data_dir {
            Some(dir) if settings.keep_state => {
                let syncs = settings.journal_sync == JournalSync::Batch;
                let journal = Journal::new(dir.clone(), name, found.as_ref(), syncs);
                Some(journal.map_err(|source| not_writable(Journal::path(dir), source))?)
            }
            Some(dir) => {
                Journal::forget(dir, name)
                    .map_err(|source| not_writable(Journal::path(dir), source))?;
                tracing::warn!("keep_state is off: a restart frees every lock");
                None
            }
            None => None,
        };
        let recovered = found.as_ref().map(|found| found.recovered);
        let engine = found.map_or_else(fresh, |found| found.engine);
        Ok(Prepared {
            settings,
            listener,
            address,
            data_dir,
            engine,
            journal,
            recovered,
            members,
            term,
            acceptor,
            users,
            connector,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn into_node(self) -> Result<(Node, TcpListener, u32, Option<UsersFile>), ServerError> {
        let peers = self
            .members
            .as_ref()
            .map_or(0, |members| members.others().count());
        let most = descriptors::connections_allowed(&self.settings, peers);
        let name = match &self.settings.advertise {
            Some(address) => Some(address.clone()),
            None if self.settings.node.is_some() => self.settings.node.clone(),
            None if self.address.ip().is_unspecified() => None,
            None => Some(self.address.to_string()),
        };
        let counter = first_counter(self.data_dir.is_none(), clock::nanos_of_second());
        let (mut engine, mut journal) = (self.engine, self.journal);
        engine.record_for_journal(journal.is_some());
        if self.members.is_none() {
            engine
                .open_term(self.term, SLOT, counter)
                .map_err(|error| ServerError::Internal(error.to_string()))?;
            match (&mut journal, self.recovered) {
                (_, Some(_)) => {
                    let grace = millis(self.settings.restart_grace);
                    engine.resume(clock::now(), grace, false);
                }
                (Some(journal), None) => journal.install_first(&mut engine, self.term)?,
                (None, None) => {}
            }
        } else if let (Some(journal), None) = (&mut journal, self.recovered) {
            // Whatever it begins with, it begins with nothing.
            journal.begin_with_nothing(clock::now(), journal::Position::default());
        }
        let beginning = Beginning {
            incarnation: RandomState::new().hash_one(1),
            disk_term: self.term,
            copy: self
                .recovered
                .map_or(Copy::default(), |recovered| recovered.copy),
        };
        let (settings, members) = (&self.settings, self.members);
        let connector = self.connector;
        let cluster = Cluster::new(
            settings,
            members,
            connector,
            beginning,
            counter,
            &mut engine,
        );
        let terms = Terms::new(self.data_dir, self.term);
        let mut node = Node::new(self.settings, name, engine, terms);
        node.cluster = cluster;
        let (users_file, users) = self.users.unzip();
        node.users = users;
        node.journal = journal;
        Ok((node, self.listener, most, users_file))
    }
}

/// How long a term may take to be written when all else has ended.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// How a node is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Its clients are told, and another node takes over.
    Orderly,
    /// As if the process had been killed.
    Abrupt,
}

/// Serves until `shutdown` is ready, and then ends as that says. Calls `shown` once the node can be seen through the window.
pub(crate) fn run(
    prepared: Prepared,
    reload: watch::Receiver<()>,
    window: &Window,
    shown: impl FnOnce(),
    shutdown: impl Future<Output = End>,
) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let acceptor = prepared.acceptor.clone();
    let (node, listener, most, users_file) = prepared.into_node()?;
    let drain_timeout = node.settings.drain_timeout;
    let shared = Shared::new(node);
    // Goes first at the end, so that nobody outside keeps what the node has in use.
    let seen = window.show(&shared, acceptor.as_ref());
    shown();
    let result = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        shared.lock().begin(&shared);
        if let Some(acceptor) = &acceptor {
            tokio::spawn(tls::watch(acceptor.clone(), reload.clone()));
        }
        if let Some(file) = users_file {
            users::start_lanes(&shared);
            tokio::spawn(users::watch(shared.clone(), file, reload));
        }
        let mut accepting = tokio::spawn(accept::run(shared.clone(), listener, most, acceptor));
        let mut timing = tokio::spawn(timers::run(shared.clone(), Alarm::new()?));
        tokio::spawn(spin::run(shared.clone()));
        tokio::spawn(cluster::settle_clients(shared.clone()));
        tokio::spawn(journal::work(shared.clone()));
        let ended = |task| ServerError::Internal(format!("the task that {task} has ended"));
        let end = tokio::select! {
            end = shutdown => end,
            failure = watch(&shared) => return Err(ServerError::Internal(failure)),
            _ = &mut accepting => return Err(ended("takes connections")),
            _ = &mut timing => return Err(ended("ends leases")),
        };
        if end == End::Abrupt {
            return Ok(());
        }
        tokio::select! {
            () = leave_cluster(&shared) => {}
            failure = watch(&shared) => return Err(ServerError::Internal(failure)),
        }
        accepting.abort();
        if shared.lock().cluster.is_none() {
            // Whatever is not done by then is cut off with the runtime.
            let _ = tokio::time::timeout(drain_timeout, drain(&shared)).await;
        }
        shared.lock().end_journal();
        tracing::info!("stopped");
        Ok(())
    });
    drop(seen);
    // A thread that is writing a term ends with the node, but a disk that hangs must not hold up the end for long.
    runtime.shutdown_timeout(LAST_WRITE);
    result
}

/// Sees to what needs more than a step: terms to write. Ends only with a failure of the node.
async fn watch(shared: &Shared) -> String {
    let news = shared.lock().news.clone();
    loop {
        news.notified().await;
        let write = {
            let mut node = shared.lock();
            if let Some(failure) = &node.failure {
                return failure.clone();
            }
            let half_used = std::mem::take(&mut node.term_half_used);
            if let Some(term) = node.term_opened.take() {
                node.cluster_event(Event::TermOpened { term });
            }
            half_used.then(|| node.term_to_prepare()).flatten()
        };
        if let Some(write) = write {
            let shared = shared.clone();
            tokio::task::spawn_blocking(move || {
                while let Err(error) = write.write() {
                    now_and_then!(
                        error,
                        "cannot write term {}: {error}; trying again",
                        write.term()
                    );
                    std::thread::sleep(Duration::from_secs(1));
                }
                let mut node = shared.lock();
                let Node { terms, engine, .. } = &mut *node;
                terms.written(write.term(), engine);
            });
        }
    }
}

/// Hands over to another node if there is one that can, and lets the clients go there.
async fn leave_cluster(shared: &Shared) {
    let ending = match &shared.lock().cluster {
        Some(cluster) => cluster.ending.clone(),
        None => return,
    };
    shared.lock().cluster_event(Event::Stop);
    loop {
        {
            let mut node = shared.lock();
            if node.role == Role::Leaving && node.open == 0 {
                node.cluster_event(Event::Drained);
            }
            if node.cluster.as_ref().is_none_or(|cluster| cluster.over) {
                return;
            }
        }
        ending.notified().await;
    }
}

/// Lets the clients go: who waits is told to look elsewhere, and what has come in is still answered.
async fn drain(shared: &Shared) {
    let (news, ids) = {
        let mut node = shared.lock();
        node.become_role(Role::Leaving, "it was told to stop");
        (node.news.clone(), node.connections.ids())
    };
    for id in ids {
        while shared.lock().refuse_waiting(id) {
            tokio::task::yield_now().await;
        }
    }
    while shared.lock().open > 0 {
        news.notified().await;
    }
}

fn bind(addresses: &[SocketAddr]) -> Result<TcpListener, ServerError> {
    let mut failure = None;
    for address in addresses {
        match reserved::take(*address).map_or_else(|| TcpListener::bind(address), Ok) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                // The standard library asks for a queue of 128, which a thousand clients that come back at once overrun.
                rustix::net::listen(&listener, 4096).map_err(io::Error::from)?;
                return Ok(listener);
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                failure = Some(ServerError::AddressInUse { address: *address });
            }
            Err(source) => {
                failure = Some(ServerError::Listen {
                    address: *address,
                    source,
                })
            }
        }
    }
    Err(failure.expect("settings name at least one address"))
}

fn not_writable(path: PathBuf, source: io::Error) -> ServerError {
    ServerError::DataDir { path, source }
}

/// Makes the state of the last run again, if it was kept.
fn recover(
    dir: &DataDir,
    node: &str,
    fresh: impl Fn() -> Engine,
) -> Result<Option<Found>, ServerError> {
    let present = (clock::now(), journal::wall());
    let found = journal::find(dir, node, present, fresh).map_err(|(path, problem)| {
        let problem = problem.to_string();
        ServerError::Journal { path, problem }
    })?;
    let Some(found) = found else {
        return Ok(None);
    };
    let (stats, path) = (found.engine.stats(), found.path.display());
    let Copy {
        stream, sequence, ..
    } = found.recovered.copy;
    tracing::info!(
        "journal {path}: {} keys held and {} requests waiting, as of change {sequence} of term {}",
        stats.held,
        stats.waiting,
        stream.term
    );
    if found.recovered.cut > 0 {
        tracing::warn!(
            "journal {path}: the last write was not finished; {} bytes are cut off",
            found.recovered.cut
        );
    }
    Ok(Some(found))
}

fn read_secret_files(settings: &mut Settings) -> Result<(), ServerError> {
    if let Some(path) = &settings.secret_file {
        settings.secret = Some(read_secret("secret_file", path)?);
    }
    if let Some(path) = &settings.cluster_secret_file {
        settings.cluster_secret = Some(read_secret("cluster_secret_file", path)?);
    }
    Ok(())
}
