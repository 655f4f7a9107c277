#!/usr/bin/env python3
"""Pairs (acquire + release) a second of this package, beside the same lines written by hand over a bare socket.

    ./bench.py [--server ADDRESS] [--seconds 1] [--rounds 9] [--pin-client 0 --pin-server 1] [--uvloop]

Without --server the real binary is started (FAIRLOCK_BIN, else `fairlock` on PATH). Targets take turns, each round a
little, so that whatever else the machine does hits all of them; printed are medians, and ratios of the same round.
"""

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import fairlock

UNDER_WAY = 64


def bare_blocking(address: str, seconds: float) -> float:
    """One connection, one request at a time: send a line, read a line."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pairs, begun = 0, time.perf_counter()
        while (took := time.perf_counter() - begun) < seconds:
            connection.sendall(b"A bare 30 0\n")
            token = connection.recv(4096).split()[2]
            connection.sendall(b"R bare %s\n" % token)
            connection.recv(4096)
            pairs += 1
    return pairs / took


def ours_blocking(address: str, seconds: float) -> float:
    with fairlock.Client(address) as client:
        client.connect()
        pairs, begun = 0, time.perf_counter()
        while (took := time.perf_counter() - begun) < seconds:
            client.acquire("ours").release()
            pairs += 1
    return pairs / took


class Lines(asyncio.Protocol):
    """What one would write by hand: futures in the order of the requests, answers matched in turn."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one without deriving from `asyncio.Transport`.
        self.transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            fields = line.split(b" ")
            self.waiting.pop(fields[-1]).set_result(fields[2])

    def ask(self, line: bytes, tag: bytes) -> "asyncio.Future[bytes]":
        future = self.waiting[tag] = self.loop.create_future()
        self.transport.write(line)
        return future


def bare_asyncio(address: str, seconds: float) -> float:
    """One connection, 64 tasks: each sends a line and awaits its answer, matched by tag."""

    async def main() -> float:
        host, port = address.rsplit(":", 1)
        transport, lines = await asyncio.get_running_loop().create_connection(Lines, host, int(port))
        pairs, begun = 0, time.perf_counter()

        async def work(worker: int) -> None:
            nonlocal pairs
            key, tag = b"bare:%d" % worker, b"#%d" % worker
            while time.perf_counter() - begun < seconds:
                token = await lines.ask(b"A %s 30 0 %s\n" % (key, tag), tag)
                await lines.ask(b"R %s %s %s\n" % (key, token, tag), tag)
                pairs += 1

        await asyncio.gather(*(work(worker) for worker in range(UNDER_WAY)))
        took = time.perf_counter() - begun
        transport.close()
        return pairs / took

    return asyncio.run(main())


def ours_asyncio(address: str, seconds: float) -> float:
    async def main() -> float:
        async with fairlock.AsyncClient(address) as client:
            await client.connect()
            pairs, begun = 0, time.perf_counter()

            async def work(worker: int) -> None:
                nonlocal pairs
                key = f"ours:{worker}"
                while time.perf_counter() - begun < seconds:
                    lock = await client.acquire(key)
                    await lock.release()
                    pairs += 1

            await asyncio.gather(*(work(worker) for worker in range(UNDER_WAY)))
            return pairs / (time.perf_counter() - begun)

    return asyncio.run(main())


@contextmanager
def server(address: str | None, core: int | None) -> Iterator[str]:
    if address:
        yield address
        return
    binary = os.environ.get("FAIRLOCK_BIN") or shutil.which("fairlock") or "fairlock"
    pin = (lambda: os.sched_setaffinity(0, {core})) if core is not None else None
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=pin,
        )
        assert process.stdout is not None
        try:
            yield next(line.split()[-1] for line in process.stdout if line.startswith("listening on "))
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def compare(address: str, seconds: float, rounds: int, *targets: Callable[[str, float], float]) -> None:
    speeds: dict[str, list[float]] = {target.__name__: [] for target in targets}
    for _ in range(rounds):
        for target in targets:
            speeds[target.__name__].append(target(address, seconds))
    bare = speeds[targets[0].__name__]
    for name, values in speeds.items():
        ratios = sorted(value / beside for value, beside in zip(values, bare, strict=True))
        middle = ratios[len(ratios) // 4 : len(ratios) - len(ratios) // 4]
        print(
            f"{name:16} {statistics.median(values):10,.0f} pairs/s   × bare {statistics.median(ratios):5.2f}"
            f"   (middle half {middle[0]:.2f}–{middle[-1]:.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pin-client", type=int)
    parser.add_argument("--pin-server", type=int)
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    if options.uvloop:
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    with server(options.server, options.pin_server) as address:
        if options.pin_client is not None:
            os.sched_setaffinity(0, {options.pin_client})
        compare(address, options.seconds, options.rounds, bare_blocking, ours_blocking)
        compare(address, options.seconds, options.rounds, bare_asyncio, ours_asyncio)


if __name__ == "__main__":
    main()
