"""The errors of fairlock: which one comes when is decided in the core, never here."""

__all__ = [
    "ClientClosed",
    "ConnectionFailed",
    "Error",
    "ForkedClient",
    "InternalError",
    "LockLost",
    "Refused",
    "ReleaseUnconfirmed",
    "ServerFailed",
    "StaleToken",
    "WaitTimeout",
]


class Error(Exception):
    """Every error of fairlock but wrong arguments, which are a `ValueError` or a `TypeError`."""


class WaitTimeout(Error, TimeoutError):
    """The lock was not had within `wait`. Nothing was granted, and nothing is left in the queue."""


class ConnectionFailed(Error, ConnectionError):
    """No node could be reached, or none is active. The text names the addresses and why each failed."""


class Refused(Error):
    """The node refused the request. `code` says why: `auth`, `denied`, `busy`, `version` …"""

    code: str

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message)
        self.code = code


class LockLost(Error):
    """The lock is no longer held. `reason` is `expired`, `taken`, `unconfirmed` or `closed`."""

    reason: str

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class ReleaseUnconfirmed(Error):
    """No answer to a release for five seconds: the lock may stay held until its lease ends."""


class StaleToken(Error):
    """A `Fence` has seen a higher token of this key: whoever comes with this one has lost the lock."""


class ClientClosed(Error):
    """The client was closed, before the call or under it."""


class ForkedClient(Error):
    """What was asked belongs to the process that this one was forked from: a lock, a call, an embedded server."""


class ServerFailed(Error):
    """The embedded server could not be started, or had ended before it was stopped."""


class InternalError(Error):
    """A bug in fairlock. The text is worth a report."""
