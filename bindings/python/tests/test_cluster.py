"""Three nodes inside the test process: what a client notices when they go."""

import threading

import pytest

import fairlock
from conftest import until
from fairlock.testing import Cluster


class Waiting:
    """One who waits for a key in a thread of his own."""

    def __init__(self, client: fairlock.Client, key: str) -> None:
        self.lock: fairlock.Lock | None = None
        self.thread = threading.Thread(target=self.wait, args=(client, key), daemon=True)
        self.thread.start()

    def wait(self, client: fairlock.Client, key: str) -> None:
        self.lock = client.acquire(key, wait=60)

    def granted(self) -> fairlock.Lock:
        self.thread.join(20)
        assert self.lock is not None
        return self.lock


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_lock_and_its_queue_outlive_the_active_node(fairlock_cluster: Cluster, way: str) -> None:
    first = fairlock_cluster.active()
    assert first == fairlock_cluster.addresses[0]
    with fairlock.Client(fairlock_cluster.addresses) as client, fairlock.Client(fairlock_cluster.addresses[2]) as other:
        assert client.status().peers == fairlock_cluster.addresses
        lock = client.acquire("order:42")
        waiting = Waiting(other, "order:42")
        until(lambda: client.waiters("order:42").total == 1)
        fairlock_cluster.settle()
        getattr(fairlock_cluster, way)(first)
        assert fairlock_cluster.settle() == fairlock_cluster.addresses[1]
        assert lock.held
        assert client.inspect("order:42").token == lock.token
        assert waiting.lock is None
        assert lock.release()
        assert waiting.granted().token > lock.token


def test_a_node_comes_back_to_its_place() -> None:
    with Cluster(2, preempt_delay=0.1) as cluster, fairlock.Client(cluster.addresses) as client:
        first, second = cluster.addresses
        lock = client.acquire("order:42")
        cluster.stop(first)
        assert cluster.active() == second
        cluster.start(first)
        until(lambda: cluster.settle() == first)
        assert lock.release()


def test_free_addresses_differ_and_nobody_is_there() -> None:
    addresses = {fairlock.Server.free_address() for _ in range(20)}
    assert len(addresses) == 20
    with fairlock.Client(addresses.pop(), connect_timeout=0.1) as client, pytest.raises(fairlock.ConnectionFailed):
        client.status()


def test_settings_of_a_cluster_are_checked() -> None:
    address = fairlock.Server.free_address()
    for peers in (["a:1", "b:1"], "a:1,b:1"):
        with pytest.raises(ValueError, match="`node` is `c:1`: that is none of `peers`, which are a:1,b:1"):
            fairlock.Server(peers=peers, node="c:1")
    with pytest.raises(ValueError, match="stands twice"):
        fairlock.Server(peers=[address, address], node=address)
    with pytest.raises(ValueError, match="`peers` is missing"):
        fairlock.Server(node=address)
    with pytest.raises(TypeError):
        fairlock.Server(peers=[1, 2], node=address)  # type: ignore[list-item]
