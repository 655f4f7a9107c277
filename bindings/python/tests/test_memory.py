"""What is used once is given back: memory, descriptors, threads."""

import asyncio
import contextlib
import gc
import os
import pathlib
import threading

import fairlock
from conftest import until

PAIRS = int(os.environ.get("FAIRLOCK_TEST_PAIRS", "20000"))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads() -> int:
    """Threads of the client; the embedded node has others."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            names.append(pathlib.Path(f"/proc/self/task/{thread}/comm").read_text())
    return names.count("fairlock\n")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def grown(work: "object", rounds: int = 4) -> int:
    """By how much the process grows over the later rounds; the first ones fill caches and pools."""
    assert callable(work)
    sizes = []
    for _ in range(rounds):
        work()
        gc.collect()
        sizes.append(resident())
    return sizes[-1] - sizes[rounds // 2 - 1]


def test_pairs_keep_no_memory(client: fairlock.Client) -> None:
    def work() -> None:
        for number in range(PAIRS // 4):
            with client.lock(f"key:{number}", on_lost=print):
                pass

    assert grown(work) < 4 << 20


def test_failed_tries_keep_no_memory(client: fairlock.Client, other: fairlock.Client) -> None:
    with other.lock("key"):

        def work() -> None:
            for _ in range(PAIRS // 4):
                assert client.try_acquire("key") is None

        assert grown(work) < 4 << 20


def test_asyncio_keeps_no_memory(address: str) -> None:
    async def pairs(client: fairlock.AsyncClient, worker: int) -> None:
        for number in range(PAIRS // 64 // 4):
            async with client.lock(f"key:{worker}:{number}", on_lost=print):
                pass

    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            await asyncio.gather(*(pairs(client, worker) for worker in range(64)))

    assert grown(lambda: asyncio.run(main())) < 4 << 20


def test_cancelled_calls_and_listeners_keep_no_memory(address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client, client.lock("key") as lock:
            for _ in range(PAIRS // 40):
                for call in [client.acquire("key"), lock.lost()]:
                    task = asyncio.ensure_future(call)
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])

    assert grown(lambda: asyncio.run(main())) < 4 << 20


def test_clients_come_and_go_on_one_thread(address: str) -> None:
    keeper = fairlock.Client(address)
    keeper.connect()
    open_before = descriptors()
    for _ in range(20):
        clients = [fairlock.Client(address) for _ in range(5)]
        for client in clients:
            with client.lock("key"):
                pass
        assert threads() == 1
        for client in clients[:3]:
            client.close()
        # The others are just dropped.
        del client, clients
        gc.collect()
    until(lambda: descriptors() <= open_before)
    keeper.close()


def test_one_background_thread_however_many_clients(address: str) -> None:
    before = threading.active_count()
    clients = [fairlock.Client(address) for _ in range(20)]
    for client in clients:
        client.connect()
    assert threading.active_count() == before
    assert threads() == 1
    for client in clients:
        client.close()
