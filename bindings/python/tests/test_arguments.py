"""What is wrong with an argument is said in Python's own words, before anything is sent."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import fairlock
from conftest import Scripted


@pytest.fixture
def silent(scripted: Any) -> Iterator[Scripted]:
    """A server that notices every request."""
    server = scripted(lambda fields: None)
    yield server
    assert [line for line in server.lines if line[0] not in "HP"] == []


async def _never_awaited(reason: str) -> None:
    raise AssertionError(reason)


WRONG_KEYS = [
    ("", ValueError),
    (b"", ValueError),
    ("k" * 513, ValueError),
    ("\u00e9" * 257, ValueError),
    ("\ud800", ValueError),
    (None, TypeError),
    (42, TypeError),
    (["key"], TypeError),
    (bytearray(b"key"), TypeError),
]
WRONG_OPTIONS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"lease": math.nan}, ValueError),
    ({"lease": -1}, ValueError),
    ({"lease": math.inf}, ValueError),
    ({"lease": 1e300}, ValueError),
    ({"lease": 1e12}, ValueError),
    ({"lease": 0}, ValueError),
    ({"lease": 0.0}, ValueError),
    ({"lease": 1e-12}, ValueError),
    ({"lease": "30"}, TypeError),
    ({"lease": 10**400}, ValueError),
    ({"wait": math.nan}, ValueError),
    ({"wait": -0.001}, ValueError),
    ({"wait": -math.inf}, ValueError),
    ({"wait": math.inf}, ValueError),
    ({"wait": 1e300}, ValueError),
    ({"wait": 1e-12}, ValueError),
    ({"wait": 0.0001}, ValueError),
    ({"wait": "5"}, TypeError),
    ({"max_hold": math.nan}, ValueError),
    ({"max_hold": -1}, ValueError),
    ({"max_hold": 0}, ValueError),
    ({"keep_alive": True, "lease": 0.5}, ValueError),
    ({"keep_alive": "yes"}, TypeError),
    ({"on_lost": 1}, TypeError),
    # It is called and not awaited: nothing of it would ever run.
    ({"on_lost": _never_awaited}, TypeError),
    ({"lesae": 30}, TypeError),
    ({"timeout": 30}, TypeError),
]
WRONG_CLIENTS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"servers": ""}, ValueError),
    ({"servers": []}, ValueError),
    ({"servers": "host:notaport"}, ValueError),
    ({"servers": "host:99999"}, ValueError),
    ({"servers": 7420}, TypeError),
    ({"servers": [7420]}, TypeError),
    ({"name": ""}, ValueError),
    ({"name": "x" * 129}, ValueError),
    ({"name": 1}, TypeError),
    ({"secret": ""}, ValueError),
    ({"secret": 1}, TypeError),
    ({"secret": "x", "secret_file": "y"}, ValueError),
    ({"secret_file": "/no/such/file"}, ValueError),
    ({"connect_timeout": 0}, ValueError),
    ({"connect_timeout": math.nan}, ValueError),
    ({"connect_timeout": math.inf}, ValueError),
    ({"retry_for": -1}, ValueError),
    ({"follow_moves": "none"}, ValueError),
    ({"follow_moves": 1}, TypeError),
    ({"server": "a:1"}, TypeError),
]


@pytest.mark.parametrize(("key", "error"), WRONG_KEYS)
def test_wrong_keys(silent: Scripted, key: Any, error: type[Exception]) -> None:
    client = fairlock.Client(silent.address)
    calls: list[Callable[[Any], object]] = [client.acquire, client.try_acquire, client.inspect, client.waiters]
    for call in calls:
        with pytest.raises(error):
            call(key)
    with pytest.raises(error), client.lock(key):
        pass
    with pytest.raises(error):
        client.release(key, 1)
    with pytest.raises(error):
        client.keep(key, 1, 30)

    async def awaited() -> None:
        async with fairlock.AsyncClient(silent.address) as client:
            calls: list[Callable[[Any], Awaitable[object]]] = [
                client.acquire,
                client.try_acquire,
                client.inspect,
                client.waiters,
            ]
            for call in calls:
                with pytest.raises(error):
                    await call(key)
            with pytest.raises(error):
                async with client.lock(key):
                    pass

    asyncio.run(awaited())


@pytest.mark.parametrize(("options", "error"), WRONG_OPTIONS)
def test_wrong_options(silent: Scripted, options: dict[str, Any], error: type[Exception]) -> None:
    client = fairlock.Client(silent.address)
    with pytest.raises(error):
        client.acquire("key", **options)
    with pytest.raises(error), client.lock("key", **options):
        pass
    with pytest.raises(error if "wait" not in options else TypeError):
        client.try_acquire("key", **options)

    async def awaited() -> None:
        async with fairlock.AsyncClient(silent.address) as client:
            with pytest.raises(error):
                await client.acquire("key", **options)
            with pytest.raises(error):
                async with client.lock("key", **options):
                    pass

    asyncio.run(awaited())


@pytest.mark.parametrize(("options", "error"), WRONG_CLIENTS)
def test_wrong_options_of_a_client(options: dict[str, Any], error: type[Exception]) -> None:
    for client in [fairlock.Client, fairlock.AsyncClient]:
        with pytest.raises(error):
            client(**options)


@pytest.mark.parametrize("token", [0, 2**63, -1, 2**64])
def test_wrong_tokens(silent: Scripted, token: int) -> None:
    client = fairlock.Client(silent.address)
    with pytest.raises(ValueError):
        client.release("key", token)
    with pytest.raises(ValueError):
        client.keep("key", token, 30)
    with pytest.raises(ValueError):
        fairlock.Fence().check("key", token)
    with pytest.raises(TypeError):
        client.release("key", "1")  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, 100_001, -1])
def test_wrong_limits(silent: Scripted, limit: int) -> None:
    client = fairlock.Client(silent.address)
    with pytest.raises(ValueError):
        client.waiters("key", limit=limit)
    with pytest.raises(ValueError):
        client.locks(limit=limit)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"listen": "nonsense"}, (ValueError, fairlock.ServerFailed)),
        ({"max_lease": "long"}, ValueError),
        ({"max_keys": -1}, ValueError),
        ({"no_such_setting": 1}, TypeError),
    ],
)
def test_wrong_settings_of_a_server(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        fairlock.Server(**settings)


WRONG_ARGUMENTS: list[tuple[Callable[[fairlock.Client], object], type[Exception], str]] = [
    (
        lambda client: fairlock.Client(7420),  # type: ignore[arg-type]
        TypeError,
        "servers takes an address as str, 'host:port', or a list of such, not int",
    ),
    (
        lambda client: fairlock.Client(("127.0.0.1", 7420)),  # type: ignore[arg-type]
        TypeError,
        "servers takes an address as str, 'host:port', or a list of such, not a tuple with int in it",
    ),
    (
        lambda client: fairlock.AsyncClient(("127.0.0.1", 7420)),  # type: ignore[arg-type]
        TypeError,
        "servers takes an address as str, 'host:port', or a list of such, not a tuple with int in it",
    ),
    (
        lambda client: fairlock.Client(secret=5),  # type: ignore[arg-type]
        TypeError,
        "secret takes a str or bytes, not int",
    ),
    (
        lambda client: fairlock.Client(name=5),  # type: ignore[arg-type]
        TypeError,
        "name takes a str, not int",
    ),
    (
        lambda client: fairlock.Client(tls=1),  # type: ignore[arg-type]
        TypeError,
        "tls takes True or False, not int",
    ),
    (
        lambda client: fairlock.Client(connect_timeout=0),
        ValueError,
        "connect_timeout is 0 s; give a time from a millisecond to a year",
    ),
    (
        lambda client: client.acquire("key", lease="30"),  # type: ignore[arg-type]
        TypeError,
        "lease takes a number of seconds, not str",
    ),
    (
        lambda client: client.acquire("key", keep_alive=1),  # type: ignore[arg-type]
        TypeError,
        "keep_alive takes True or False, not int",
    ),
    (
        lambda client: client.acquire("key", lease=-1),
        ValueError,
        "lease is -1.0; give a number of seconds",
    ),
    (
        lambda client: client.acquire("key", lease=0),
        ValueError,
        "lease is 0 s; give a time from a millisecond to a year",
    ),
    (
        lambda client: client.acquire("key", lease=0.5, keep_alive=True),
        ValueError,
        "lease is 0.5 s; give at least a second, or no keep_alive",
    ),
    (
        lambda client: client.acquire("key", wait=-1),
        ValueError,
        "wait is -1.0; give a number of seconds, or 0 to wait without limit",
    ),
    (
        lambda client: client.acquire("key", max_hold=10**400),
        ValueError,
        "max_hold is out of its limits; give a number of seconds",
    ),
    (
        lambda client: client.release("key", "5"),  # type: ignore[arg-type]
        TypeError,
        "token takes the token of a lock, an int from 1 to 2**63 - 1, not str",
    ),
    (
        lambda client: client.release("key", -1),
        ValueError,
        "token is out of its limits; give the token of a lock, an int from 1 to 2**63 - 1",
    ),
    (
        lambda client: fairlock.Server(max_laese=60),
        TypeError,
        "Server() has no setting 'max_laese'; did you mean max_lease?",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG_ARGUMENTS)
def test_a_wrong_argument_is_named_with_what_it_takes(
    silent: Scripted, call: Callable[[fairlock.Client], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        call(fairlock.Client(silent.address))
    assert str(caught.value) == text


def test_a_scope_that_is_taken_for_a_lock_says_what_it_is(silent: Scripted) -> None:
    for name in ["acquire", "release", "token"]:
        with pytest.raises(AttributeError, match=r"'LockScope' .* use `with client\.lock.*client\.acquire"):
            getattr(fairlock.Client(silent.address).lock("key"), name)
        with pytest.raises(AttributeError, match=r"'AsyncLockScope' .* use `async with client\.lock.*await client\.acquire"):
            getattr(fairlock.AsyncClient(silent.address).lock("key"), name)


@pytest.mark.parametrize(
    ("variable", "named"), [("FAIRLOCK_TLS", "FAIRLOCK_TLS"), ("FAIRLOCK_SERVER", "FAIRLOCK_SERVERS")]
)
def test_what_the_environment_says_is_never_passed_over(
    variable: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLOCK_SERVERS", raising=False)
    monkeypatch.setenv(variable, "perhaps")
    for client in [fairlock.Client, fairlock.AsyncClient]:
        with pytest.raises(ValueError, match=named):
            client()


def test_wait_zero_waits_without_limit_and_numbers_may_be_whole(client: fairlock.Client) -> None:
    with client.lock("key", wait=0, lease=30):
        pass
    with client.lock("key", wait=5, lease=86400, max_hold=3):
        pass


def test_options_come_from_the_environment(fairlock_server: fairlock.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLOCK_SERVERS", fairlock_server.address)
    with fairlock.Client() as client, client.lock("key"):
        pass


def test_both_clients_take_the_same_options() -> None:
    for name in ["acquire", "try_acquire", "lock", "release", "keep", "inspect", "waiters", "locks", "status", "close"]:
        here = list(inspect.signature(getattr(fairlock.Client, name)).parameters.values())
        there = list(inspect.signature(getattr(fairlock.AsyncClient, name)).parameters.values())
        strip = [(parameter.name, parameter.kind, parameter.default) for parameter in here]
        # `self` of the native method is positional only.
        assert strip[1:] == [(parameter.name, parameter.kind, parameter.default) for parameter in there][1:], name
    assert [p for p in inspect.signature(fairlock.Client).parameters] == [
        p for p in inspect.signature(fairlock.AsyncClient).parameters
    ]


def test_classes_cannot_be_changed_from_outside(client: fairlock.Client) -> None:
    with pytest.raises(AttributeError):
        client.servers = "elsewhere"  # type: ignore[attr-defined]
    with client.lock("key") as lock, pytest.raises(AttributeError):
        lock.token = 1  # type: ignore[misc]
