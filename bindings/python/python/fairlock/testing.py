"""A cluster inside the test process, whose nodes can be stopped, killed and started again.

    with Cluster() as cluster, fairlock.Client(cluster.addresses) as client:
        lock = client.acquire("order:42")
        cluster.stop(cluster.active())
        assert lock.release()
"""

import time
from types import TracebackType
from typing import Any

from ._errors import ConnectionFailed
from ._fairlock import Client, Server

__all__ = ["Cluster"]


class Cluster:
    """Nodes in this process, at addresses of 127.0.0.1 that stay theirs. All of them run and are settled to begin with.

    size: how many nodes.
    settings: settings of every node, by the names that they have in the settings file.
    """

    def __init__(self, size: int = 3, **settings: Any) -> None:
        self.addresses = [Server.free_address() for _ in range(size)]
        """All nodes in the order of their priority, running or not: what a client takes."""
        self._settings = settings
        self._nodes: dict[str, Server] = {}
        try:
            for address in self.addresses:
                self.start(address)
            self.settle()
        except BaseException:
            self.close()
            raise

    def start(self, address: str) -> None:
        """Starts a node that does not run."""
        if address in self._nodes:
            raise ValueError(f"{address} runs")
        self._nodes[address] = Server(peers=self.addresses, node=address, **self._settings)

    def stop(self, address: str) -> None:
        """Stops a node in order: if it is the active one, it hands over first."""
        self._nodes.pop(address).stop()

    def kill(self, address: str) -> None:
        """Ends a node as if its process had been killed."""
        self._nodes.pop(address).kill()

    def active(self, limit: float = 20) -> str:
        """Waits until a node is active, and names it."""
        return self._wait(0, limit)

    def settle(self, limit: float = 20) -> str:
        """Waits until a node is active and all others that run have a copy of its state, and names it."""
        return self._wait(len(self._nodes) - 1, limit)

    def close(self) -> None:
        """Ends all nodes."""
        while self._nodes:
            self._nodes.popitem()[1].kill()

    def _wait(self, copies: int, limit: float) -> str:
        end = time.monotonic() + limit
        while time.monotonic() < end:
            for address in self._nodes:
                try:
                    with Client(address, follow_moves="listed", connect_timeout=1) as client:
                        status = client.status()
                except ConnectionFailed:
                    continue
                if status.role == "active" and len(status.standbys) >= copies:
                    return address
            time.sleep(0.005)
        raise TimeoutError(f"after {limit} s no node is active with {copies} standbys")

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self,
        _class: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()
