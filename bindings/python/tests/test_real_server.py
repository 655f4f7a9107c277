"""Against the real binary, where the server is killed under its clients."""

import asyncio
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

import fairlock
from conftest import until

BIN = os.environ.get("FAIRLOCK_BIN", "")
pytestmark = pytest.mark.skipif(not BIN, reason="FAIRLOCK_BIN names no server")


class Process:
    def __init__(self, folder: pathlib.Path, listen: str = "127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            [BIN, "serve", "--listen", listen, "--data-dir", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.address = line.split()[-1]
                return
        pytest.fail("the server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.kill()


def test_a_killed_server_fails_a_waiting_call_and_the_client_comes_back(server: Process, tmp_path: pathlib.Path) -> None:
    client = fairlock.Client(server.address, connect_timeout=0.5)
    lock = client.acquire("key", lease=60)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            client.acquire("key")
        except fairlock.ConnectionFailed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: client.inspect("key").waiters == 1)
    server.kill()
    thread.join(20)
    assert [type(error) for error in errors] == [fairlock.ConnectionFailed]
    assert server.address in str(errors[0])

    again = Process(tmp_path, server.address)
    try:
        # The server has a data dir, so it knows the lock as before.
        lock.release()
        with fairlock.Client(server.address) as new, new.lock("key", wait=20) as later:
            assert later.token > lock.token
        with client.lock("other", wait=20):
            pass
    finally:
        again.kill()


def test_retry_for_outlives_a_restart(server: Process, tmp_path: pathlib.Path) -> None:
    client = fairlock.Client(server.address, connect_timeout=0.5, retry_for=30)
    client.connect()
    server.kill()
    got: list[fairlock.Lock] = []
    thread = threading.Thread(target=lambda: got.append(client.acquire("key")))
    thread.start()
    time.sleep(0.2)
    again = Process(tmp_path, server.address)
    try:
        thread.join(30)
        assert got and got[0].held
        client.close()
    finally:
        again.kill()


def test_a_frozen_server_ends_keep_alive_before_the_lease_does(server: Process) -> None:
    async def main() -> None:
        client = fairlock.AsyncClient(server.address)
        lock = await client.acquire("key", lease=2, keep_alive=True)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGSTOP)
        try:
            assert await asyncio.wait_for(lock.lost(), 10) == "unconfirmed"
            assert not lock.held
            assert time.monotonic() - begun < 3
        finally:
            server.process.send_signal(signal.SIGCONT)
        await client.close()

    asyncio.run(main())
