//! The client whose calls block.

use crate::arguments::{
    self, ConnectTimeout, Key, Lease, Limit, MaxHold, Moves, Name, RetryFor, Secret, ServerName,
    Servers, TokenNumber, Wait,
};
use crate::border::{blocking, guard};
use crate::bridge::Bridge;
use crate::error;
use crate::lock::{Lock, OnLost};
use crate::options::Options;
use crate::scope::LockScope;
use crate::view;
use fairlock::ClientBuilder;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A client of a fairlock server or cluster. May be used from any thread.
#[pyclass(frozen, weakref, module = "fairlock")]
pub(crate) struct Client {
    pub(crate) core: fairlock::Client,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (servers=None, *, name=None, secret=None, secret_file=None, connect_timeout=None, retry_for=None, follow_moves=None, tls=None, ca_file=None, cert_file=None, key_file=None, server_name=None))]
    #[expect(clippy::too_many_arguments, reason = "the options of a client")]
    fn new(
        py: Python<'_>,
        servers: Option<Servers>,
        name: Option<Name>,
        secret: Option<Secret>,
        secret_file: Option<PathBuf>,
        connect_timeout: Option<ConnectTimeout>,
        retry_for: Option<RetryFor>,
        follow_moves: Option<Moves>,
        #[pyo3(from_py_with = arguments::tls)] tls: Option<bool>,
        ca_file: Option<PathBuf>,
        cert_file: Option<PathBuf>,
        key_file: Option<PathBuf>,
        server_name: Option<ServerName>,
    ) -> PyResult<Client> {
        let builder = builder(
            servers,
            name,
            secret,
            secret_file,
            connect_timeout,
            retry_for,
            follow_moves,
        )?;
        let tls = Tls {
            tls,
            ca_file,
            cert_file,
            key_file,
            server_name,
        };
        Client::build(py, tls.add_to(builder))
    }

    /// Waits until a connection is up, at most for the connect time-out.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |every, go_on| {
            self.core.connected().call_checking(every, go_on)
        })
    }

    /// A scope that holds the lock: `with client.lock("order:42") as lock: …`
    #[pyo3(signature = (key, *, lease=None, wait=None, keep_alive=false, max_hold=None, on_lost=None))]
    fn lock(
        &self,
        key: Key<'_>,
        lease: Option<Lease>,
        wait: Option<Wait>,
        #[pyo3(from_py_with = arguments::keep_alive)] keep_alive: bool,
        max_hold: Option<MaxHold>,
        on_lost: Option<OnLost>,
    ) -> LockScope {
        let options = Options {
            lease,
            wait,
            keep_alive,
            max_hold,
            on_lost,
        };
        LockScope::new(self.core.clone(), key.into(), options)
    }

    /// Locks `key`, waiting in line for it.
    #[pyo3(signature = (key, *, lease=None, wait=None, keep_alive=false, max_hold=None, on_lost=None))]
    #[expect(clippy::too_many_arguments, reason = "the options of an acquire")]
    fn acquire(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        lease: Option<Lease>,
        wait: Option<Wait>,
        #[pyo3(from_py_with = arguments::keep_alive)] keep_alive: bool,
        max_hold: Option<MaxHold>,
        on_lost: Option<OnLost>,
    ) -> PyResult<Lock> {
        let options = Options {
            lease,
            wait,
            keep_alive,
            max_hold,
            on_lost,
        };
        let call = options.acquire(&self.core, &key)?;
        let lock = blocking(py, |every, go_on| call.call_checking(every, go_on))?;
        Ok(Lock::new(py, lock, key.into(), options.on_lost))
    }

    /// Locks `key` if it is free at this moment; `None` if it is not.
    #[pyo3(signature = (key, *, lease=None, keep_alive=false, max_hold=None, on_lost=None))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        lease: Option<Lease>,
        #[pyo3(from_py_with = arguments::keep_alive)] keep_alive: bool,
        max_hold: Option<MaxHold>,
        on_lost: Option<OnLost>,
    ) -> PyResult<Option<Lock>> {
        let options = Options {
            lease,
            wait: None,
            keep_alive,
            max_hold,
            on_lost,
        };
        let call = options.try_acquire(&self.core, &key)?;
        let lock = blocking(py, |every, go_on| call.call_checking(every, go_on))?;
        Ok(lock.map(|lock| Lock::new(py, lock, key.into(), options.on_lost)))
    }

    /// Releases whatever holds `key` with `token`, also a lock of another client: for operators.
    fn release(&self, py: Python<'_>, key: Key<'_>, token: TokenNumber) -> PyResult<bool> {
        let call = self.core.release(key.bytes()?, token.0);
        blocking(py, |every, go_on| call.call_checking(every, go_on))
    }

    /// Lets the lease of whatever holds `key` with `token` end no earlier than `lease` from now.
    fn keep(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        token: TokenNumber,
        lease: Lease,
    ) -> PyResult<bool> {
        let call = self.core.keep(key.bytes()?, token.0, lease.0);
        blocking(py, |every, go_on| call.call_checking(every, go_on))
    }

    /// Whether `key` is held, and by whom.
    fn inspect<'py>(&self, py: Python<'py>, key: Key<'py>) -> PyResult<Bound<'py, PyAny>> {
        let call = self.core.inspect(key.bytes()?);
        view::key_state(
            py,
            blocking(py, |every, go_on| call.call_checking(every, go_on))?,
        )
    }

    /// Who waits for `key`: the first `limit` of them, and how many there are in all.
    #[pyo3(signature = (key, *, limit=Limit(view::ROWS)), text_signature = "($self, key, *, limit=1000)")]
    fn waiters<'py>(
        &self,
        py: Python<'py>,
        key: Key<'py>,
        limit: Limit,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = self.core.waiters(key.bytes()?, limit.0);
        view::waiters(
            py,
            blocking(py, |every, go_on| call.call_checking(every, go_on))?,
        )
    }

    /// Held keys that begin with `prefix`, at most `limit`, from behind the key `after`.
    #[pyo3(signature = (prefix=None, *, after=None, limit=Limit(view::ROWS)), text_signature = "($self, prefix=None, *, after=None, limit=1000)")]
    fn locks<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<Key<'py>>,
        after: Option<Key<'py>>,
        limit: Limit,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = self.locks_call(prefix.as_ref(), after.as_ref(), limit.0)?;
        view::lock_page(
            py,
            blocking(py, |every, go_on| call.call_checking(every, go_on))?,
        )
    }

    /// What the node that serves this client says of itself.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let call = self.core.status();
        view::status(
            py,
            blocking(py, |every, go_on| call.call_checking(every, go_on))?,
        )
    }

    /// Ends what is under way with `ClientClosed`, and releases the locks that are still held.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |every, go_on| {
            self.core.close().call_checking(every, go_on)
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<fairlock.{:?}>", self.core)
    }
}

impl Client {
    fn build(py: Python<'_>, builder: ClientBuilder) -> PyResult<Client> {
        guard(py, || {
            let core = builder
                .build()
                .map_err(|error| error::to_python(py, &error))?;
            Ok(Client { core })
        })
    }

    pub(crate) fn locks_call(
        &self,
        prefix: Option<&Key<'_>>,
        after: Option<&Key<'_>>,
        limit: u32,
    ) -> PyResult<fairlock::Call<fairlock::LockPage>> {
        let prefix = prefix.map_or(Ok(&b""[..]), Key::bytes)?;
        let after = after.map(Key::bytes).transpose()?;
        Ok(self.core.locks(prefix, after, limit))
    }
}

/// A client that is read by the event loop of `bridge`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the options of a client")]
pub(crate) fn client_of_loop(
    py: Python<'_>,
    bridge: Option<&Bound<'_, Bridge>>,
    servers: Option<Servers>,
    name: Option<Name>,
    secret: Option<Secret>,
    secret_file: Option<PathBuf>,
    connect_timeout: Option<ConnectTimeout>,
    retry_for: Option<RetryFor>,
    follow_moves: Option<Moves>,
    #[pyo3(from_py_with = arguments::tls)] tls: Option<bool>,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    server_name: Option<ServerName>,
) -> PyResult<Client> {
    let builder = builder(
        servers,
        name,
        secret,
        secret_file,
        connect_timeout,
        retry_for,
        follow_moves,
    )?;
    let tls = Tls {
        tls,
        ca_file,
        cert_file,
        key_file,
        server_name,
    };
    let builder = tls.add_to(builder);
    let event_loop = bridge.and_then(|bridge| bridge.get().event_loop());
    Client::build(
        py,
        match event_loop {
            Some(event_loop) => builder.event_loop(event_loop),
            None => builder,
        },
    )
}

fn builder(
    servers: Option<Servers>,
    name: Option<Name>,
    secret: Option<Secret>,
    secret_file: Option<PathBuf>,
    connect_timeout: Option<ConnectTimeout>,
    retry_for: Option<RetryFor>,
    follow_moves: Option<Moves>,
) -> PyResult<ClientBuilder> {
    let mut builder = fairlock::Client::builder();
    if let Some(servers) = servers {
        builder = builder.servers(Vec::from(servers));
    }
    if let Some(Name(name)) = name {
        builder = builder.name(name);
    }
    if let Some(secret) = secret {
        builder = builder.secret(Vec::from(secret));
    }
    if let Some(file) = secret_file {
        builder = builder.secret_file(file);
    }
    if let Some(ConnectTimeout(time)) = connect_timeout {
        builder = builder.connect_timeout(time);
    }
    if let Some(RetryFor(time)) = retry_for {
        builder = builder.retry_for(time);
    }
    if let Some(text) = follow_moves {
        builder = builder.follow_moves(arguments::follow_moves(&text)?);
    }
    Ok(builder)
}

/// How connections are secured.
struct Tls {
    tls: Option<bool>,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    server_name: Option<ServerName>,
}

impl Tls {
    fn add_to(self, mut builder: ClientBuilder) -> ClientBuilder {
        if let Some(wanted) = self.tls {
            builder = builder.tls(wanted);
        }
        if let Some(file) = self.ca_file {
            builder = builder.ca_file(file);
        }
        if let Some(file) = self.cert_file {
            builder = builder.cert_file(file);
        }
        if let Some(file) = self.key_file {
            builder = builder.key_file(file);
        }
        if let Some(ServerName(name)) = self.server_name {
            builder = builder.server_name(name);
        }
        builder
    }
}
