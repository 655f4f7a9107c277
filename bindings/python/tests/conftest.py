"""What the tests share: a client, a way to wait for an event, scripts in processes of their own, a scripted server."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import fairlock

KEPT = {"FAIRLOCK_BIN", "FAIRLOCK_TEST_CERTIFICATES"}
# Only what a test says itself counts.
for name in [name for name in os.environ if name.startswith("FAIRLOCK_") and name not in KEPT]:
    del os.environ[name]


# Who runs the tests in the background may have them ignore Ctrl+C, and their children with them.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def address(fairlock_server: fairlock.Server) -> str:
    return fairlock_server.address


@pytest.fixture
def client(address: str) -> Iterator[fairlock.Client]:
    with fairlock.Client(address, name="the client of the test") as client:
        yield client


@pytest.fixture
def other(address: str) -> Iterator[fairlock.Client]:
    """A second client, which sees what the first one leaves."""
    with fairlock.Client(address, name="the other client") as client:
        yield client


def until(condition: Callable[[], object], limit: float = 20) -> None:
    """Waits for an event, and fails if it does not come."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "the event did not come"
        time.sleep(0.005)


def run(
    source: str,
    address: str = "",
    *arguments: str,
    limit: float = 30,
    strict: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own. `strict` is not for forks, of which newer Pythons warn."""
    process = start(source, address, *arguments, strict=strict)
    try:
        out, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        pytest.fail(f"the script hangs\n{out}\n{error}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def start(
    source: str, address: str = "", *arguments: str, strict: bool = True
) -> "subprocess.Popen[str]":
    flags = ["-X", "dev", "-W", "error"] if strict else ["-X", "faulthandler"]
    return subprocess.Popen(
        [sys.executable, *flags, "-c", textwrap.dedent(source), *arguments],
        env={**os.environ, "FAIRLOCK_SERVERS": address},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: "subprocess.Popen[str]", line: str) -> None:
    """Waits until a script has printed this line."""
    assert process.stdout is not None and process.stderr is not None
    heard = process.stdout.readline().rstrip("\n")
    if heard != line:
        process.kill()
        pytest.fail(f"heard {heard!r}, not {line!r}\n{process.stdout.read()}{process.stderr.read()}")


class Scripted:
    """A server that answers as a test wants: `answer` gets the fields of a line and gives lines, or none.

    Hellos and probes are answered unless the test answers them itself.
    """

    def __init__(self, answer: Callable[[list[str]], str | None]) -> None:
        self.answer = answer
        self.lines: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        host, port = self.listener.getsockname()
        self.address = f"{host}:{port}"
        self.sockets: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(connection)
            thread = threading.Thread(target=self.serve, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                for line in lines:
                    fields = line.decode().split()
                    self.lines.append(line.decode().rstrip())
                    answer = self.answer(fields)
                    if answer is None:
                        answer = self.usual(fields)
                    if answer:
                        connection.sendall(f"{answer}\n".encode())
            except OSError:
                return

    def usual(self, fields: list[str]) -> str:
        match fields:
            case ["H", *_]:
                return f"H 1 role=active node={self.address} active={self.address} peers={self.address} server=0"
            case ["P", *tag]:
                return " ".join(["P", *tag])
            case ["C", key, tag]:
                return f"C {key} none {tag}"
        return ""

    def close(self) -> None:
        # A closed listener wakes nobody who accepts; one that is shut down does.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.threads[0].join()
        for connection in self.sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join()


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[list[str]], str | None]], Scripted]]:
    servers: list[Scripted] = []

    def make(answer: Callable[[list[str]], str | None]) -> Scripted:
        servers.append(Scripted(answer))
        return servers[-1]

    yield make
    for server in servers:
        server.close()
