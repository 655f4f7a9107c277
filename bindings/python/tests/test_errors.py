"""Every row of the table of errors, blocking and with asyncio, and what each class is besides."""

import asyncio
import pickle
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fairlock
from conftest import Scripted

Answer = Callable[[list[str]], "str | None"]
MakeServer = Callable[[Answer], Scripted]
Call = Callable[[Any], Any]


def both(call: Call, *servers: str, **options: Any) -> list[BaseException]:
    """What the same call raises in both clients."""
    raised: list[BaseException] = []
    with fairlock.Client(servers, **options) as client:
        with pytest.raises(Exception) as error:
            call(client)
        raised.append(error.value)

    async def awaited() -> None:
        async with fairlock.AsyncClient(servers, **options) as client:
            with pytest.raises(Exception) as error:
                result = call(client)
                assert isinstance(result, Awaitable)
                await result
            raised.append(error.value)

    asyncio.run(awaited())
    return raised


def refusing(code: str) -> Answer:
    def answer(fields: list[str]) -> str | None:
        return f"E A {fields[1]} {code} {fields[-1]} because of {code}" if fields[0] == "A" else None

    return answer


def test_wait_timeout(client: fairlock.Client, address: str) -> None:
    with client.lock("key"):
        begun = time.monotonic()
        for error in both(lambda client: client.acquire("key", wait=0.2), address):
            assert type(error) is fairlock.WaitTimeout and isinstance(error, TimeoutError)
        assert time.monotonic() - begun >= 0.4
        assert client.inspect("key").waiters == 0


def test_connection_failed_names_the_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    begun = time.monotonic()
    for error in both(lambda client: client.acquire("key"), f"127.0.0.1:{port}", connect_timeout=0.5):
        assert type(error) is fairlock.ConnectionFailed and isinstance(error, ConnectionError)
        assert f"127.0.0.1:{port}" in str(error)
    for error in both(lambda client: client.connect(), f"127.0.0.1:{port}", connect_timeout=0.5):
        assert type(error) is fairlock.ConnectionFailed
    assert time.monotonic() - begun < 10


def test_no_active_node(scripted: MakeServer) -> None:
    server = scripted(refusing("unavailable"))
    for error in both(lambda client: client.acquire("key"), server.address):
        assert type(error) is fairlock.ConnectionFailed


@pytest.mark.parametrize("code", ["denied", "busy", "internal", "syntax", "toolong", "quota"])
def test_refused(scripted: MakeServer, code: str) -> None:
    server = scripted(refusing(code))
    for error in both(lambda client: client.acquire("key"), server.address):
        assert type(error) is fairlock.Refused and error.code == code
        assert f"because of {code}" in str(error)


@pytest.mark.parametrize("code", ["auth", "version"])
def test_refused_at_the_hello(scripted: MakeServer, code: str) -> None:
    server = scripted(lambda fields: f"E H - {code} because of {code}" if fields[0] == "H" else "")
    for error in both(lambda client: client.acquire("key"), server.address, connect_timeout=1):
        assert type(error) is fairlock.Refused and error.code == code


def test_a_secret_is_asked_for() -> None:
    with fairlock.Server(secret="open sesame") as server:
        for error in both(lambda client: client.acquire("key"), server.address, secret="guess", connect_timeout=1):
            assert type(error) is fairlock.Refused and error.code == "auth"
            assert "guess" not in str(error) and "sesame" not in str(error)
        secrets: list[str | bytes] = ["open sesame", b"open sesame"]
        for secret in secrets:
            with fairlock.Client(server.address, secret=secret) as client, client.lock("key"):
                pass


@pytest.mark.parametrize("code", ["key", "lease", "wait"])
def test_invalid_argument_found_by_the_node(scripted: MakeServer, code: str) -> None:
    server = scripted(refusing(code))
    for error in both(lambda client: client.acquire("key"), server.address):
        assert type(error) is ValueError


def test_the_longest_lease_of_a_node() -> None:
    with fairlock.Server(max_lease=10) as server:
        for error in both(lambda client: client.acquire("key", lease=11), server.address):
            assert type(error) is ValueError


def test_lock_lost(client: fairlock.Client, other: fairlock.Client, address: str) -> None:
    lock = client.acquire("key")
    other.release("key", lock.token)
    with pytest.raises(fairlock.LockLost) as error:
        lock.keep()
    assert error.value.reason == "taken"

    async def awaited() -> None:
        async with fairlock.AsyncClient(address) as client:
            lock = await client.acquire("key", lease=0.2)
            assert await lock.lost() == "expired"
            with pytest.raises(fairlock.LockLost) as error:
                await lock.keep()
            assert error.value.reason == "expired"

    asyncio.run(awaited())


def test_release_unconfirmed(scripted: MakeServer) -> None:
    def answer(fields: list[str]) -> str | None:
        if fields[0] == "A":
            return f"A {fields[1]} 77 {fields[-1]}"
        return "" if fields[0] == "R" else None

    server = scripted(answer)

    async def awaited() -> None:
        client = fairlock.AsyncClient(server.address)
        lock = await client.acquire("key")
        with pytest.raises(fairlock.ReleaseUnconfirmed):
            await lock.release()
        with pytest.raises(ZeroDivisionError) as error:
            async with client.lock("other"):
                1 / 0  # noqa: B018
        assert "and then" in str(getattr(error.value, "__notes__", "and then"))

    begun = time.monotonic()
    asyncio.run(awaited())
    assert time.monotonic() - begun >= 10
    releases = [line for line in server.lines if line.startswith("R key ")]
    assert 20 <= len(releases) <= 30


def test_stale_token() -> None:
    fence = fairlock.Fence()
    fence.check("a", 5)
    fence.check(b"a", 5)
    fence.check("b", 3)
    with pytest.raises(fairlock.StaleToken):
        fence.check("a", 4)
    assert (fence.highest("a"), fence.highest("c")) == (5, None)
    fence.forget("a")
    fence.check("a", 4)


def test_client_closed(address: str) -> None:
    client = fairlock.Client(address)
    client.close()
    calls: list[Callable[[], object]] = [
        client.connect,
        client.status,
        lambda: client.acquire("key"),
        lambda: client.try_acquire("key"),
    ]
    for call in calls:
        with pytest.raises(fairlock.ClientClosed):
            call()

    async def awaited() -> None:
        client = fairlock.AsyncClient(address)
        held = await client.acquire("key")
        waiting = asyncio.create_task(client.acquire("key"))
        async with fairlock.AsyncClient(address) as other:
            while not (await other.inspect("key")).waiters:
                await asyncio.sleep(0.005)
            await client.close()
            with pytest.raises(fairlock.ClientClosed):
                await waiting
            assert await held.lost() == "closed"
            state = await other.inspect("key")
            assert (state.held, state.waiters) == (False, 0)

    asyncio.run(awaited())


def test_a_server_that_cannot_start(fairlock_server: fairlock.Server) -> None:
    with pytest.raises(fairlock.ServerFailed):
        fairlock.Server(fairlock_server.address)


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("WaitTimeout", (TimeoutError,)),
        ("ConnectionFailed", (ConnectionError,)),
        ("Refused", ()),
        ("LockLost", ()),
        ("ReleaseUnconfirmed", ()),
        ("StaleToken", ()),
        ("ClientClosed", ()),
        ("ForkedClient", ()),
        ("ServerFailed", ()),
        ("InternalError", ()),
    ],
)
def test_classes(name: str, bases: tuple[type, ...]) -> None:
    error = getattr(fairlock, name)
    assert issubclass(error, (fairlock.Error, *bases)) and all(issubclass(error, base) for base in bases)
    made = error("text")
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is error and str(again) == "text"


def test_details_survive_a_process_border() -> None:
    assert pickle.loads(pickle.dumps(fairlock.Refused("text", "busy"))).code == "busy"
    assert pickle.loads(pickle.dumps(fairlock.LockLost("text", "taken"))).reason == "taken"
