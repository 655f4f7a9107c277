"""Python clients that work while nodes fail: threads with a blocking client, and tasks with an asynchronous one.

Says "working", goes on until a line comes in, then writes down what the clients saw, one call a line.
"""

import asyncio
import json
import random
import sys
import threading
import time

import fairlock

LEASE = 20.0
THREADS = 3
TASKS = 6


class Saw:
    """One call, from its beginning."""

    def __init__(self, client: int, key: str, wait: float | None) -> None:
        self.row = {
            "client": client,
            "key": key,
            "wait_ms": None if wait is None else round(wait * 1000),
            "asked": time.monotonic_ns(),
            "sent": None,
            "ended": 0,
            "outcome": "not_had",
            "release": None,
            "lost": None,
        }
        self.began = 0

    def had(self, lock: "fairlock.Lock | fairlock.AsyncLock | None") -> None:
        self.row["ended"] = time.monotonic_ns()
        if lock is not None:
            self.row["outcome"] = {"granted": lock.token}

    def failed(self, error: Exception) -> None:
        self.row["ended"] = time.monotonic_ns()
        if not isinstance(error, fairlock.WaitTimeout):
            self.row["outcome"] = {"failed": f"{type(error).__name__}: {error}"}

    def releases(self) -> None:
        self.began = time.monotonic_ns()

    def released(self, outcome: bool) -> None:
        self._end({"Ok": outcome})

    def not_released(self, error: Exception) -> None:
        self._end({"Err": f"{type(error).__name__}: {error}"})

    def _end(self, outcome: dict) -> None:
        self.row["release"] = {"began": self.began, "ended": time.monotonic_ns(), "outcome": outcome}


def choice() -> tuple[str | None, float | None]:
    key = f"shared-{random.randrange(3)}" if random.random() < 0.5 else None
    return key, random.choice([None, 0.01, 20.0, 0.0, 0.0, 0.0])


def thread(client: fairlock.Client, own: str, stop: threading.Event, history: list) -> None:
    while not stop.is_set():
        key, wait = choice()
        key = key or own
        saw = Saw(1_000_001, key, wait)
        try:
            lock = client.try_acquire(key, lease=LEASE) if wait is None else client.acquire(key, lease=LEASE, wait=wait)
            saw.had(lock)
        except fairlock.Error as error:
            saw.failed(error)
            lock = None
        if lock is not None:
            time.sleep(random.random() / 1000)
            saw.releases()
            try:
                saw.released(lock.release())
            except fairlock.Error as error:
                saw.not_released(error)
        history.append(saw.row)
        time.sleep(random.random() / 500)


async def task(client: fairlock.AsyncClient, own: str, stop: threading.Event, history: list) -> None:
    while not stop.is_set():
        key, wait = choice()
        key = key or own
        saw = Saw(1_000_002, key, wait)
        try:
            if wait is None:
                lock = await client.try_acquire(key, lease=LEASE)
            else:
                lock = await client.acquire(key, lease=LEASE, wait=wait, keep_alive=True)
            saw.had(lock)
        except fairlock.Error as error:
            saw.failed(error)
            lock = None
        if lock is not None:
            await asyncio.sleep(random.random() / 1000)
            saw.releases()
            try:
                saw.released(await lock.release())
            except fairlock.Error as error:
                saw.not_released(error)
        history.append(saw.row)
        await asyncio.sleep(random.random() / 500)


async def tasks(servers: list[str], stop: threading.Event, history: list) -> None:
    async with fairlock.AsyncClient(servers) as client:
        await client.connect()
        await asyncio.gather(*(task(client, f"own-task-{number}", stop, history) for number in range(TASKS)))


def main() -> None:
    servers = sys.argv[1].split(",")
    stop = threading.Event()
    history: list = []
    client = fairlock.Client(servers)
    # A wait that is over before the first connection is up ends with an error.
    client.connect()
    threads = [
        threading.Thread(target=thread, args=(client, f"own-thread-{number}", stop, history)) for number in range(THREADS)
    ]
    threads.append(threading.Thread(target=lambda: asyncio.run(tasks(servers, stop, history))))
    for each in threads:
        each.start()
    print("working", flush=True)
    sys.stdin.readline()
    stop.set()
    for each in threads:
        each.join()
    client.close()
    for row in history:
        print(json.dumps(row))


main()
