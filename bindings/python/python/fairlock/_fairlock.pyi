"""The native half of the package."""

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, final

from ._views import KeyState, LockPage, Status, Waiters

__version__: str

@final
class Client:
    """A client of a fairlock server or cluster. May be used from any thread.

    Making one does not wait for the network: connections come up in the background, and the first call waits for
    them, at most `connect_timeout`. One background thread serves all clients of a process; a client never keeps
    the process from ending. `with Client(…) as client:` closes it at the end.

    servers: one address or several, in any order; a port that is left out is 7420. Default: `FAIRLOCK_SERVERS`,
        else `127.0.0.1:7420`.
    name: shown to operators who ask who holds a lock. Default: host name and process id.
    secret, secret_file: what the servers want to hear: their secret, or `name:secret` of a user.
        Default: `FAIRLOCK_SECRET`, `FAIRLOCK_SECRET_FILE`.
    connect_timeout: seconds for each try of a connection, and for which a call waits when none is up; it also waits until each
        server has been tried once more, which is every three seconds. Default: 3.
    retry_for: seconds for which an acquire goes on trying after its tries are used up. Default: 0.
    follow_moves: `any` address that a server names (the default), or only `listed` ones.
    tls: with TLS, or surely without it. By default there is TLS where `FAIRLOCK_TLS` is `true`, and as soon as one of
        the next four is given. With it and without `ca_file` the CAs count that the system trusts.
    ca_file: the CAs that have to have signed the servers' certificates. Default: `FAIRLOCK_CA_FILE`.
    cert_file, key_file: what this client shows where a server asks for a certificate. Default: `FAIRLOCK_CERT_FILE`,
        `FAIRLOCK_KEY_FILE`. All files are PEM, and are read again for new connections when they have changed.
    server_name: the name that the servers' certificates have to be for, where that is not the host of each address.
        Default: `FAIRLOCK_SERVER_NAME`.

    Raises `ValueError` or `TypeError` for an option that cannot be used.
    """

    def __new__(
        cls,
        servers: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        secret: str | bytes | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        connect_timeout: float | None = None,
        retry_for: float | None = None,
        follow_moves: Literal["any", "listed"] | None = None,
        tls: bool | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        cert_file: str | os.PathLike[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        server_name: str | None = None,
    ) -> Client: ...
    def connect(self) -> None:
        """Waits until a connection is up, at most for the connect time-out; else raises `ConnectionFailed`."""

    def lock(
        self,
        key: str | bytes,
        *,
        lease: float | None = None,
        wait: float | None = None,
        keep_alive: bool = False,
        max_hold: float | None = None,
        on_lost: Callable[[str], object] | None = None,
    ) -> LockScope:
        """A scope that holds the lock: `with client.lock("order:42") as lock: …`. Options as in `acquire`.

        Leaving the scope releases the lock, also on an error, and never hides that error.
        """

    def acquire(
        self,
        key: str | bytes,
        *,
        lease: float | None = None,
        wait: float | None = None,
        keep_alive: bool = False,
        max_hold: float | None = None,
        on_lost: Callable[[str], object] | None = None,
    ) -> Lock:
        """Locks `key`, waiting in line for it, without the GIL. Ctrl+C ends it and leaves nothing in the queue.

        lease: seconds after which the lock is taken back unless it is kept. Generous, but no longer than a dead
            client may block the others. Default: 30.
        wait: seconds to wait for the lock, one budget over everything that is tried; 0, the default, is without
            limit. Not to wait at all is `try_acquire`.
        keep_alive: renews the lock at every third of its lease, on the background thread, until it is released.
            The lease has to be at least one second.
        max_hold: seconds after which `keep_alive` renews no more.
        on_lost: called once if the lock is lost, with the reason: `expired`, `taken`, `unconfirmed` or `closed`. Never called
            if the lock is released before. One thread calls for all locks of the process, one after the other: a call that
            takes its time holds up those after it.

        Raises `WaitTimeout`, `ConnectionFailed`, `Refused`, `ClientClosed`; `ValueError` or `TypeError` before
        anything is sent.
        """

    def try_acquire(
        self,
        key: str | bytes,
        *,
        lease: float | None = None,
        keep_alive: bool = False,
        max_hold: float | None = None,
        on_lost: Callable[[str], object] | None = None,
    ) -> Lock | None:
        """Locks `key` if it is free at this moment; `None` if it is not."""

    def release(self, key: str | bytes, token: int) -> bool:
        """Releases whatever holds `key` with `token`, also a lock of another client: for operators.

        False if this token does not hold it.
        """

    def keep(self, key: str | bytes, token: int, lease: float) -> bool:
        """Lets the lease of whatever holds `key` with `token` end no earlier than `lease` seconds from now.

        False if this token does not hold it.
        """

    def inspect(self, key: str | bytes) -> KeyState:
        """Whether `key` is held, and by whom."""

    def waiters(self, key: str | bytes, *, limit: int = 1000) -> Waiters:
        """Who waits for `key`: the first `limit` of them, and how many there are in all."""

    def locks(
        self,
        prefix: str | bytes | None = None,
        *,
        after: str | bytes | None = None,
        limit: int = 1000,
    ) -> LockPage:
        """Held keys that begin with `prefix`, at most `limit`, from behind the key `after`."""

    def status(self) -> Status:
        """What the node that serves this client says of itself."""

    def close(self) -> None:
        """Ends what is under way with `ClientClosed`, and releases the locks that are still held.

        Takes at most a second. Closing a closed client is well.
        """

    def __enter__(self) -> Client: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None: ...

@final
class Lock:
    """A held lock. Who has this object holds the lock, whatever thread that is.

    It can be used as a scope, `with client.acquire(…):`, which releases it. Dropped, it is released in the
    background.
    """

    @property
    def key(self) -> str | bytes:
        """What is locked, as it was given."""

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every grant before. Give it to the protected resource."""

    @property
    def lease(self) -> float:
        """The lease by which the lock ends, in seconds: that of the acquire, or of the latest `keep` that has put its end off."""

    @property
    def remaining(self) -> float:
        """For how many seconds the lock is held at least; 0 if it is lost or released."""

    @property
    def held(self) -> bool:
        """Whether the lock is held as far as this client knows."""

    def lost(self) -> str | None:
        """How the lock was lost: `expired`, `taken`, `unconfirmed` or `closed`; `None` if it was not."""

    def keep(self, lease: float | None = None) -> None:
        """Renews the lock: the lease ends no earlier than its length from now.

        Raises `LockLost` if it is no longer held, `ForkedClient` in a forked process.
        """

    def release(self) -> bool:
        """Releases the lock. False if it had been lost before.

        Repeated until a node confirms it, also when the caller is interrupted meanwhile. Raises
        `ReleaseUnconfirmed` if none does for five seconds, `ForkedClient` in a forked process.
        """

    def __enter__(self) -> Lock: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None: ...

@final
class LockScope:
    """`with client.lock(key) as lock:` acquires when it is entered, and releases when it is left."""

    def __enter__(self) -> Lock: ...
    def __exit__(
        self,
        class_: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Fence:
    """Remembers the highest token seen of each key and refuses smaller ones, for use by the protected resource.

    This one lives in memory; where the resource outlives the process, store the mark in the resource itself, in
    the same transaction as the write.
    """

    def __new__(cls) -> Fence: ...
    def check(self, key: str | bytes, token: int) -> None:
        """Lets `token` pass if it is at least the highest one seen of `key`, and remembers it.

        Raises `StaleToken` if a higher one has been seen.
        """

    def highest(self, key: str | bytes) -> int | None:
        """The highest token seen of `key`; `None` if there was none."""

    def forget(self, key: str | bytes) -> None:
        """Forgets `key`, for resources that are gone."""

@final
class Server:
    """A node inside this process, on a thread of its own, for tests. `with Server() as server:` stops it at the end.

    listen: where clients connect, as in `127.0.0.1:7420`; by default a free port, or `node`.
    peers, node: all nodes of a cluster in the order of their priority, the same for each, and which of them this is.
    data_dir: where the node keeps its term, so that tokens rise over restarts, and its locks; without it it is ephemeral.
    settings: any other setting of a node, by the name that it has in the settings file.

    Raises `TypeError` for an unknown setting, `ValueError` for a wrong one, `ServerFailed` where it cannot start.
    """

    def __new__(
        cls,
        listen: str | None = None,
        *,
        peers: Sequence[str] | None = None,
        node: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        **settings: str | bytes | float | bool | os.PathLike[str] | None,
    ) -> Server: ...
    @staticmethod
    def free_address() -> str:
        """An address of this machine that nobody else gets until a node of this process listens there, so that the nodes of a
        cluster can be told of each other before the first one starts. Another one each time."""

    @property
    def address(self) -> str:
        """Where clients connect, with the port that was found."""

    def stop(self) -> None:
        """Stops the node in order: it hands over to another node of its cluster. Stopping a stopped one is well."""

    def kill(self) -> None:
        """Ends the node at once, as if its process had been killed: nobody is told and nothing is handed over."""

    def __enter__(self) -> Server: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None: ...

# What `fairlock._asyncio` uses.

@final
class Bridge:
    """One event loop's end of the asynchronous calls."""

    def __new__(cls) -> Bridge: ...
    def fileno(self) -> int:
        """What the loop watches; when it is readable, `drain` is due."""

    def drain(self) -> None:
        """Settles the futures of all operations that have ended."""

    def watch(self) -> int | None:
        """A descriptor of sockets that this loop reads for; `None` if it watches it already."""

    def turn(self) -> None:
        """Reads for the clients of this loop, and settles the futures of what has ended."""

    def end_turn(self) -> None:
        """Writes what the clients of this loop were asked for since the turn began."""

@final
class Operation:
    """An operation under way."""

    def cancel(self) -> None:
        """Gives up: nothing is left on the server. A release goes on all the same."""

def client_of_loop(
    bridge: Bridge | None,
    servers: str | Sequence[str] | None,
    name: str | None,
    secret: str | bytes | None,
    secret_file: str | os.PathLike[str] | None,
    connect_timeout: float | None,
    retry_for: float | None,
    follow_moves: str | None,
    tls: bool | None,
    ca_file: str | os.PathLike[str] | None,
    cert_file: str | os.PathLike[str] | None,
    key_file: str | os.PathLike[str] | None,
    server_name: str | None,
) -> Client: ...
def abandon(lock: Lock) -> None: ...
def start_acquire(
    client: Client,
    bridge: Bridge,
    future: Any,
    key: str | bytes,
    lease: float | None,
    wait: float | None,
    keep_alive: bool,
    max_hold: float | None,
    on_lost: Callable[[str], object] | None,
) -> Operation: ...
def start_try_acquire(
    client: Client,
    bridge: Bridge,
    future: Any,
    key: str | bytes,
    lease: float | None,
    keep_alive: bool,
    max_hold: float | None,
    on_lost: Callable[[str], object] | None,
) -> Operation: ...
def start_keep(lock: Lock, bridge: Bridge, future: Any, lease: float | None) -> Operation: ...
def start_release(lock: Lock, bridge: Bridge, future: Any) -> Operation: ...
def start_lost(lock: Lock, bridge: Bridge, future: Any) -> None: ...
def start_connect(client: Client, bridge: Bridge, future: Any) -> Operation: ...
def start_close(client: Client, bridge: Bridge, future: Any) -> Operation: ...
def start_release_token(client: Client, bridge: Bridge, future: Any, key: str | bytes, token: int) -> Operation: ...
def start_keep_token(
    client: Client, bridge: Bridge, future: Any, key: str | bytes, token: int, lease: float
) -> Operation: ...
def start_inspect(client: Client, bridge: Bridge, future: Any, key: str | bytes) -> Operation: ...
def start_waiters(client: Client, bridge: Bridge, future: Any, key: str | bytes, limit: int) -> Operation: ...
def start_locks(
    client: Client,
    bridge: Bridge,
    future: Any,
    prefix: str | bytes | None,
    after: str | bytes | None,
    limit: int,
) -> Operation: ...
def start_status(client: Client, bridge: Bridge, future: Any) -> Operation: ...
