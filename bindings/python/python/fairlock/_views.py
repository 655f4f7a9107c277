"""What a node tells operators about its locks."""

from typing import NamedTuple

__all__ = ["HeldLock", "KeyState", "LockPage", "Status", "Waiter", "Waiters"]


class KeyState(NamedTuple):
    """One key. All but the first two are `None` when nobody holds it."""

    held: bool
    waiters: int
    token: int | None
    remaining: float | None
    """Seconds that are left of the lease."""
    name: str | None
    """The name that the holder gave itself."""
    address: str | None
    """The holder's network address, as the node saw it."""


class HeldLock(NamedTuple):
    """One held key of a list."""

    key: str | bytes
    """`str` where the key is UTF-8."""
    token: int
    remaining: float
    waiters: int
    name: str | None
    address: str


class LockPage(NamedTuple):
    """Some of the held keys, in the node's own order."""

    locks: list[HeldLock]
    next: str | bytes | None
    """What to give as `after` for the next page; `None` if this is the last one."""


class Waiter(NamedTuple):
    """One who waits for a key."""

    position: int
    """The place in the queue, from 1."""
    waited: float
    """Seconds already."""
    name: str | None
    address: str


class Waiters(NamedTuple):
    """The head of a queue."""

    total: int
    """How many wait in all."""
    first: list[Waiter]
    """Those at the head, as many as were asked for."""


class Status(NamedTuple):
    """What a node says of itself."""

    role: str
    """`starting`, `standby`, `active` or `leaving`."""
    node: str
    active: str | None
    term: int
    held: int
    waiting: int
    connections: int
    standbys: list[str]
    """Those that have a copy of its state."""
    peers: list[str]
    """All nodes of its cluster in the order of their priority, itself included."""
