"""Fair distributed locks with leases and fencing tokens.

    client = fairlock.Client("127.0.0.1:7420")
    with client.lock("order:42", lease=30, wait=5) as lock:
        write_order(lock.token)

`AsyncClient` is the same for asyncio. All times are seconds. `Server` is a node inside this process, for tests.
"""

from typing import TYPE_CHECKING

from ._errors import (
    ClientClosed,
    ConnectionFailed,
    Error,
    ForkedClient,
    InternalError,
    LockLost,
    Refused,
    ReleaseUnconfirmed,
    ServerFailed,
    StaleToken,
    WaitTimeout,
)
from ._fairlock import Client, Fence, Lock, LockScope, Server, __version__
from ._views import HeldLock, KeyState, LockPage, Status, Waiter, Waiters

if TYPE_CHECKING:
    from ._asyncio import AsyncClient, AsyncLock, AsyncLockScope

__all__ = [
    "AsyncClient",
    "AsyncLock",
    "AsyncLockScope",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "Error",
    "Fence",
    "ForkedClient",
    "HeldLock",
    "InternalError",
    "KeyState",
    "Lock",
    "LockLost",
    "LockPage",
    "LockScope",
    "Refused",
    "ReleaseUnconfirmed",
    "Server",
    "ServerFailed",
    "StaleToken",
    "Status",
    "WaitTimeout",
    "Waiter",
    "Waiters",
    "__version__",
]


def __getattr__(name: str) -> object:
    # Who does not use asyncio does not pay for its import.
    if name in ("AsyncClient", "AsyncLock", "AsyncLockScope"):
        from . import _asyncio

        globals()[name] = value = getattr(_asyncio, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
