"""The client for asyncio: the same calls as `Client`, each of which can be awaited and cancelled.

Each call makes a future, hands it to a `start_…` function of the native half, which returns at once, and awaits
it. One `Bridge` for each event loop settles the futures; it belongs to the loop's reader, so it ends with the loop.
"""

import os
from asyncio import AbstractEventLoop, Future, get_running_loop, shield
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from threading import Lock as ThreadLock
from types import TracebackType
from typing import Any, Literal, NoReturn
from weakref import WeakKeyDictionary, ref

from . import _fairlock as native
from ._fairlock import Bridge, Client, Lock, Operation
from ._views import KeyState, LockPage, Status, Waiters

__all__ = ["AsyncClient", "AsyncLock", "AsyncLockScope"]

# Weak on both sides: a bridge knows its loop through the futures under way, and must not keep it alive.
_bridges: WeakKeyDictionary[AbstractEventLoop, ref[Bridge]] = WeakKeyDictionary()
_latest: tuple[Callable[[], AbstractEventLoop | None], Callable[[], Bridge | None]]

# Held for a moment by who begins to wait for a loss, because others may do so on other threads.
_watching: ThreadLock


def _forget_bridges() -> None:
    """A forked process has its parent's loops in its memory, and its parent's bridges must not be rung by it."""
    global _latest, _watching
    # Another thread may have held it when this process was forked.
    _watching = ThreadLock()
    _bridges.clear()
    _latest = (lambda: None), (lambda: None)


_forget_bridges()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_bridges)


def _bridge_of(loop: AbstractEventLoop) -> Bridge:
    """The bridge of this loop; nearly always it is that of the call before."""
    global _latest
    latest_loop, latest_bridge = _latest
    bridge = latest_bridge()
    if bridge is not None and latest_loop() is loop:
        return bridge
    known = _bridges.get(loop)
    bridge = known() if known is not None else None
    if bridge is None:
        bridge = Bridge()
        loop.add_reader(bridge.fileno(), bridge.drain)
        _bridges[loop] = ref(bridge)
    _latest = ref(loop), ref(bridge)
    return bridge


def _reading_bridge() -> Bridge | None:
    """The bridge of the running loop, which from now on reads for the clients that are made on it; none if none runs."""
    try:
        loop = get_running_loop()
    except RuntimeError:
        return None
    bridge = _bridge_of(loop)
    descriptor = bridge.watch()
    if descriptor is not None:
        loop.add_reader(descriptor, bridge.turn)
    return bridge


async def _run(start: Callable[..., Operation], subject: Client | Lock, *arguments: object) -> Any:
    """One call from its start to its result. Given up, it leaves nothing behind."""
    loop = get_running_loop()
    future: Future[Any] = loop.create_future()
    operation = start(subject, _bridge_of(loop), future, *arguments)
    try:
        return await future
    except BaseException:
        _give_up(operation, future)
        raise


def _give_up(operation: Operation, future: "Future[Any]") -> None:
    """What a caller leaves that was cancelled, or whose loop is gone; nothing if the call has ended by itself."""
    operation.cancel()
    if future.done() and not future.cancelled() and future.exception() is None:
        # The result had come, and nobody will take it.
        lock = future.result()
        if isinstance(lock, Lock):
            native.abandon(lock)


class AsyncLock:
    """A held lock. Who has this object holds the lock, whatever task that is.

    It can be used as a scope, `async with await client.acquire(…):`, which releases it. Dropped, it is released
    in the background.
    """

    __slots__ = ("__weakref__", "_lock", "_lost", "_released")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        # One for each event loop on which somebody waits.
        self._lost: dict[AbstractEventLoop, Future[str | None]] | None = None
        self._released = False

    @property
    def key(self) -> str | bytes:
        """What is locked, as it was given."""
        return self._lock.key

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every grant before."""
        return self._lock.token

    @property
    def lease(self) -> float:
        """The lease by which the lock ends, in seconds: that of the acquire, or of the latest `keep` that has put its end off."""
        return self._lock.lease

    @property
    def remaining(self) -> float:
        """For how many seconds the lock is held at least; 0 if it is lost or released."""
        return self._lock.remaining

    @property
    def held(self) -> bool:
        """Whether the lock is held as far as this client knows."""
        return self._lock.held

    async def keep(self, lease: float | None = None) -> None:
        """Renews the lock: the lease ends no earlier than its length from now.

        Raises `LockLost` if it is no longer held.
        """
        await _run(native.start_keep, self._lock, lease)

    async def release(self) -> bool:
        """Releases the lock. False if it had been lost before.

        Repeated until a node confirms it, also when the task is cancelled meanwhile. Raises
        `ReleaseUnconfirmed` if none does for five seconds.
        """
        try:
            return bool(await _run(native.start_release, self._lock))
        finally:
            # From the first try of a release on, nobody is told of a loss any more.
            self._released = True
            if self._lost is not None:
                for loop, future in self._lost.items():
                    # Nobody waits on a loop that is closed.
                    with suppress(RuntimeError):
                        loop.call_soon_threadsafe(self._tell_lost, future)

    def _tell_lost(self, future: "Future[str | None]") -> None:
        if not future.done():
            future.set_result(self._lock.lost())

    async def lost(self) -> str | None:
        """Waits until the lock is lost: `expired`, `taken`, `unconfirmed` or `closed`; `None` once it is released."""
        if self._released:
            return self._lock.lost()
        loop = get_running_loop()
        future = self._lost.get(loop) if self._lost is not None else None
        if future is None:
            future = loop.create_future()
            native.start_lost(self._lock, _bridge_of(loop), future)
            with _watching:
                known = self._lost or {}
                open_loops = {other: theirs for other, theirs in known.items() if not other.is_closed()}
                # Another dictionary, because a release on another thread may be going through this one.
                self._lost = {**open_loops, loop: future}
            # A release that has begun meanwhile may have found the dictionary before.
            if self._released:
                self._tell_lost(future)
        # One future for all who ask on this loop, however often they ask and give up.
        return await shield(future)

    async def __aenter__(self) -> "AsyncLock":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except Exception as failed:
            # The error of the body is what the caller has to see; that of the release goes with it.
            if error is None:
                raise
            if hasattr(error, "add_note"):
                error.add_note(f"and then: {failed}")

    def __repr__(self) -> str:
        return repr(self._lock).replace("fairlock.Lock", "fairlock.AsyncLock", 1)


class AsyncLockScope:
    """`async with client.lock(key) as lock:` acquires when it is entered, and releases when it is left."""

    __slots__ = ("_acquire", "_entered", "_lock")

    def __init__(self, acquire: Callable[[], Coroutine[Any, Any, AsyncLock]]) -> None:
        self._acquire = acquire
        self._entered = False
        self._lock: AsyncLock | None = None

    def __getattr__(self, name: str) -> NoReturn:
        # What a lock has, a scope has not. Asked only for names that are not found.
        raise AttributeError(
            f"'AsyncLockScope' object has no attribute {name!r}: it is a scope and no lock yet; "
            "use `async with client.lock(…) as lock:`, or await client.acquire(…)"
        )

    async def __aenter__(self) -> AsyncLock:
        # Two tasks in one scope could not tell their locks apart.
        if self._entered:
            raise RuntimeError("this scope has been entered already; call client.lock() for each use")
        self._entered = True
        try:
            self._lock = lock = await self._acquire()
        except BaseException:
            self._entered = False
            raise
        return lock

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            raise RuntimeError("this scope has not been entered")
        self._entered = False
        await lock.__aexit__(kind, error, traceback)


class AsyncClient:
    """A client of a fairlock server or cluster, for asyncio. The options are those of `Client`.

    It can be used on any event loop, also on several; it is fastest on the one that runs when it is made. Making one does not wait for the network: connections
    come up in the background, and the first call waits for them. `async with AsyncClient(…) as client:` closes
    it at the end.
    """

    __slots__ = ("__weakref__", "_client")

    def __init__(
        self,
        servers: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        secret: str | bytes | None = None,
        secret_file: "str | os.PathLike[str] | None" = None,
        connect_timeout: float | None = None,
        retry_for: float | None = None,
        follow_moves: Literal["any", "listed"] | None = None,
        tls: bool | None = None,
        ca_file: "str | os.PathLike[str] | None" = None,
        cert_file: "str | os.PathLike[str] | None" = None,
        key_file: "str | os.PathLike[str] | None" = None,
        server_name: str | None = None,
    ) -> None:
        self._client = native.client_of_loop(
            _reading_bridge(),
            servers,
            name,
            secret,
            secret_file,
            connect_timeout,
            retry_for,
            follow_moves,
            tls,
            ca_file,
            cert_file,
            key_file,
            server_name,
        )

    async def connect(self) -> None:
        """Waits until a connection is up, at most for the connect time-out; else raises `ConnectionFailed`."""
        await _run(native.start_connect, self._client)

    def lock(
        self,
        key: str | bytes,
        *,
        lease: float | None = None,
        wait: float | None = None,
        keep_alive: bool = False,
        max_hold: float | None = None,
        on_lost: Callable[[str], object] | None = None,
    ) -> AsyncLockScope:
        """A scope that holds the lock: `async with client.lock("order:42") as lock: …`. Options as in `acquire`."""
        return AsyncLockScope(
            lambda: self.acquire(
                key, lease=lease, wait=wait, keep_alive=keep_alive, max_hold=max_hold, on_lost=on_lost
            )
        )

    async def acquire(
        self,
        key: str | bytes,
        *,
        lease: float | None = None,
        wait: float | None = None,
        keep_alive: bool = False,
        max_hold: float | None = None,
        on_lost: Callable[[str], object] | None = None,
    ) -> AsyncLock:
        """Locks `key`, waiting in line for it. Options and errors as in `Client.acquire`.

        `on_lost` is called on the event loop. A cancelled task leaves nothing in the queue, and a grant that was
        already on its way is released.
        """
        return AsyncLock(
            await _run(native.start_acquire, self._client, key, lease, wait, keep_alive, max_hold, on_lost)
        )

    async def try_acquire(
        self,
        key: str | bytes,
        *,
        lease: float | None = None,
        keep_alive: bool = False,
        max_hold: float | None = None,
        on_lost: Callable[[str], object] | None = None,
    ) -> AsyncLock | None:
        """Locks `key` if it is free at this moment; `None` if it is not."""
        lock = await _run(native.start_try_acquire, self._client, key, lease, keep_alive, max_hold, on_lost)
        return None if lock is None else AsyncLock(lock)

    async def release(self, key: str | bytes, token: int) -> bool:
        """Releases whatever holds `key` with `token`, also a lock of another client: for operators.

        False if this token does not hold it.
        """
        return bool(await _run(native.start_release_token, self._client, key, token))

    async def keep(self, key: str | bytes, token: int, lease: float) -> bool:
        """Lets the lease of whatever holds `key` with `token` end no earlier than `lease` seconds from now.

        False if this token does not hold it.
        """
        return bool(await _run(native.start_keep_token, self._client, key, token, lease))

    async def inspect(self, key: str | bytes) -> KeyState:
        """Whether `key` is held, and by whom."""
        state: KeyState = await _run(native.start_inspect, self._client, key)
        return state

    async def waiters(self, key: str | bytes, *, limit: int = 1000) -> Waiters:
        """Who waits for `key`: the first `limit` of them, and how many there are in all."""
        waiters: Waiters = await _run(native.start_waiters, self._client, key, limit)
        return waiters

    async def locks(
        self,
        prefix: str | bytes | None = None,
        *,
        after: str | bytes | None = None,
        limit: int = 1000,
    ) -> LockPage:
        """Held keys that begin with `prefix`, at most `limit`, from behind the key `after`."""
        page: LockPage = await _run(native.start_locks, self._client, prefix, after, limit)
        return page

    async def status(self) -> Status:
        """What the node that serves this client says of itself."""
        status: Status = await _run(native.start_status, self._client)
        return status

    async def close(self) -> None:
        """Ends what is under way with `ClientClosed`, and releases the locks that are still held."""
        await _run(native.start_close, self._client)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._client).replace("fairlock.Client", "fairlock.AsyncClient", 1)
