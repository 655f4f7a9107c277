"""The blocking client against a real node: what a user does with it."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from queue import SimpleQueue
from typing import Any

import pytest

import fairlock
from conftest import run, until


def test_a_scope_holds_the_lock_and_releases_it(client: fairlock.Client, other: fairlock.Client) -> None:
    with client.lock("order:42", lease=20, wait=5) as lock:
        assert isinstance(lock, fairlock.Lock)
        assert (lock.key, lock.lease, lock.held, lock.lost()) == ("order:42", 20, True, None)
        assert 15 < lock.remaining <= 20
        state = other.inspect("order:42")
        assert state.held and state.token == lock.token and state.name == "the client of the test"
        assert other.try_acquire("order:42") is None
    assert not lock.held
    assert lock.remaining == 0
    assert not other.inspect("order:42").held


def test_tokens_rise(client: fairlock.Client) -> None:
    tokens = []
    for _ in range(5):
        with client.lock("key") as lock:
            tokens.append(lock.token)
    assert tokens == sorted(set(tokens))


def test_an_acquired_lock_is_a_scope_too(client: fairlock.Client) -> None:
    with client.acquire("key") as lock:
        assert lock.held
    assert not lock.held


def test_release_says_whether_the_lock_was_still_held(client: fairlock.Client, other: fairlock.Client) -> None:
    lock = client.acquire("key")
    assert lock.release() is True
    assert lock.release() is True
    lock = client.acquire("key")
    assert other.release("key", lock.token) is True
    assert lock.release() is False


def test_a_lost_lock_leaves_its_scope_quietly(client: fairlock.Client, other: fairlock.Client) -> None:
    with client.lock("key") as lock:
        assert other.release("key", lock.token)


def test_waiters_are_served_in_order(client: fairlock.Client, other: fairlock.Client) -> None:
    order: list[int] = []
    first = client.acquire("key")

    def wait(number: int) -> None:
        with client.lock("key"):
            order.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda number=number: other.inspect("key").waiters == number + 1)  # type: ignore[misc]
    first.release()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_a_lock_can_be_released_by_another_thread(client: fairlock.Client, other: fairlock.Client) -> None:
    lock = client.acquire("key")
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert not other.inspect("key").held


def test_keys_are_text_or_bytes_and_come_back_as_they_were(client: fairlock.Client) -> None:
    keys: list[str | bytes] = ["a", "ключ ☃", "with space\n%", b"a", b"\x00\xff", "k" * 512]
    for key in keys:
        with client.lock(key) as lock:
            assert lock.key == key and type(lock.key) is type(key)
    with client.lock("same") as lock:
        assert client.inspect(b"same").token == lock.token


def test_a_scope_releases_after_an_error_and_never_hides_it(client: fairlock.Client) -> None:
    with pytest.raises(ZeroDivisionError):
        with client.lock("key"):
            1 / 0  # noqa: B018
    assert not client.inspect("key").held


def test_a_scope_can_be_used_again_but_not_twice_at_once(client: fairlock.Client) -> None:
    scope = client.lock("key")
    for _ in range(2):
        with scope:
            with pytest.raises(RuntimeError, match="entered already"):
                scope.__enter__()
    with pytest.raises(RuntimeError, match="not been entered"):
        scope.__exit__(None, None, None)


def test_a_dropped_lock_is_released(client: fairlock.Client, other: fairlock.Client) -> None:
    lock = client.acquire("key")
    reference = weakref.ref(lock)
    del lock
    assert reference() is None
    until(lambda: not other.inspect("key").held)


def test_keep_renews(client: fairlock.Client) -> None:
    lock = client.acquire("key", lease=5)
    lock.keep(60)
    assert lock.lease == 60
    assert lock.remaining > 50
    lock.keep()
    remaining = client.inspect("key").remaining
    assert remaining is not None and remaining > 50


def test_try_acquire(client: fairlock.Client, other: fairlock.Client) -> None:
    lock = client.try_acquire("key", lease=10)
    assert lock is not None and lock.lease == 10
    assert other.try_acquire("key") is None
    lock.release()
    with other.try_acquire("key") or pytest.fail("the key is free"):
        pass


def test_operators_see_locks_and_waiters(client: fairlock.Client, other: fairlock.Client) -> None:
    locks = [client.acquire(f"job:{number}") for number in range(3)]
    binary = client.acquire(b"\xff")
    waiting = threading.Thread(target=lambda: other.acquire("job:0").release())
    waiting.start()
    until(lambda: client.inspect("job:0").waiters == 1)

    waiters = client.waiters("job:0")
    assert waiters.total == 1
    assert [(waiter.position, waiter.name) for waiter in waiters.first] == [(1, "the other client")]
    page = client.locks("job:")
    assert sorted((lock.key, lock.token, lock.waiters) for lock in page.locks) == [
        (lock.key, lock.token, int(lock.key == "job:0")) for lock in locks
    ]
    assert page.next is None

    keys: list[object] = []
    after: str | bytes | None = None
    while True:
        page = client.locks(after=after, limit=1)
        keys += [lock.key for lock in page.locks]
        if page.next is None:
            break
        after = page.next
    assert len(keys) == 4 and set(keys) == {"job:0", "job:1", "job:2", b"\xff"}

    status = client.status()
    assert (status.role, status.held, status.waiting) == ("active", 4, 1)
    assert client.keep("job:1", locks[1].token, 90) is True
    assert client.release("job:0", locks[0].token) is True
    assert client.release("job:0", locks[0].token) is False
    waiting.join()
    binary.release()


def test_on_lost_is_told_once_with_the_reason(client: fairlock.Client, other: fairlock.Client) -> None:
    told: list[str] = []
    taken = client.acquire("key", lease=30, on_lost=told.append)
    expired = client.acquire("short", lease=0.2, on_lost=told.append)
    until(lambda: told == ["expired"])
    assert not expired.held and expired.lost() == "expired"
    other.release("key", taken.token)
    with pytest.raises(fairlock.LockLost) as error:
        taken.keep()
    assert error.value.reason == "taken"
    until(lambda: len(told) == 2)
    client.acquire("key", on_lost=told.append)
    client.close()
    time.sleep(0.05)
    assert told == ["expired", "taken"]


def test_what_on_lost_starts_gets_the_signals_of_the_program(client: fairlock.Client) -> None:
    """The library's own threads hold all signals back, and a process started by one that does would never hear Ctrl+C."""
    held_back: SimpleQueue[Any] = SimpleQueue()
    lock = client.acquire(
        "key", lease=0.1, on_lost=lambda reason: held_back.put(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    )
    assert held_back.get(timeout=10) == signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert not lock.held


def test_closing_tells_the_locks_and_releases_them(address: str, other: fairlock.Client) -> None:
    told: list[str] = []
    client = fairlock.Client(address)
    lock = client.acquire("key", on_lost=told.append)
    client.close()
    until(lambda: told == ["closed"])
    assert lock.lost() == "closed" and not lock.held
    assert not other.inspect("key").held
    client.close()


def test_a_released_lock_tells_nothing(client: fairlock.Client) -> None:
    told: list[str] = []
    with client.lock("key", lease=0.2, on_lost=told.append):
        pass
    time.sleep(0.3)
    assert told == []


def test_an_error_in_on_lost_is_shown_and_harms_nothing(
    client: fairlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: shown.append(what.exc_type))

    def fail(reason: str) -> None:
        raise ArithmeticError(reason)

    lock = client.acquire("key", lease=0.2, on_lost=fail)
    until(lambda: shown == [ArithmeticError])
    assert lock.release() is False
    with client.lock("key"):
        pass


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no list of the process's threads")
def test_one_thread_tells_of_all_losses_and_ends_after_the_last(address: str) -> None:
    def tellers() -> int:
        names = []
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as comm:
                names.append(comm.read().strip())
        # The system keeps fifteen letters of a name.
        return names.count("fairlock-on-los")

    told: list[str] = []
    first, go_on = threading.Event(), threading.Event()

    def on_lost(reason: str) -> None:
        first.set()
        assert go_on.wait(20)
        told.append(reason)

    client = fairlock.Client(address)
    locks = [client.acquire(f"key:{nth}", on_lost=on_lost) for nth in range(100)]
    client.close()
    assert first.wait(20)
    assert all(lock.lost() == "closed" for lock in locks)
    assert (tellers(), told) == (1, [])
    go_on.set()
    until(lambda: told == ["closed"] * 100)
    until(lambda: tellers() == 0)
    # And another one for the next loss.
    with fairlock.Client(address) as again:
        lock = again.acquire("key", on_lost=on_lost)
    until(lambda: len(told) == 101)
    assert lock.lost() == "closed"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are withheld by a limit of Linux")
def test_without_a_thread_for_it_the_main_thread_is_told(address: str) -> None:
    source = '''
    import resource, threading, time
    import fairlock

    told = []
    client = fairlock.Client()
    locks = [client.acquire(f"key:{nth}", on_lost=lambda reason: told.append((reason, threading.get_ident()))) for nth in range(3)]
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    # Enough for what runs already, too little for the stack of one more thread.
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20),) * 2)
    client.close()
    end = time.monotonic() + 20
    while len(told) < 3:
        assert time.monotonic() < end, told
        time.sleep(0.01)
    assert told == [("closed", threading.main_thread().ident)] * 3, told
    print("told")
    '''
    result = run(source, address)
    assert (result.returncode, result.stdout) == (0, "told\n"), result.stderr


def test_lists_have_a_thousand_rows_at_most_where_nobody_says_how_many(scripted: Any) -> None:
    server = scripted(lambda fields: " ".join([*fields[:2], "0", fields[-1]]) if fields[0] in "WL" else None)

    async def ask() -> None:
        async with fairlock.AsyncClient(server.address) as client:
            await client.waiters("key")
            await client.locks()

    with fairlock.Client(server.address) as client:
        client.waiters("key")
        client.locks()
    asyncio.run(ask())
    asked = [line.rsplit(" ", 1)[0] for line in server.lines if line[0] in "WL"]
    assert asked == ["W key 1000", "L - 1000"] * 2


def test_on_lost_may_use_the_client(client: fairlock.Client) -> None:
    got: list[fairlock.Lock] = []
    lock = client.acquire("key", lease=0.2, on_lost=lambda _: got.append(client.acquire("key")))
    until(lambda: got)
    assert got[0].token > lock.token


def test_keep_alive_goes_on_while_the_thread_holds_the_gil(
    client: fairlock.Client, other: fairlock.Client
) -> None:
    told: list[str] = []
    with client.lock("key", lease=1, keep_alive=True, on_lost=told.append) as lock:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            # One long call that never gives up the GIL.
            sum(range(1_000_000))
        assert lock.held
        assert other.inspect("key").token == lock.token
    assert told == []


def test_max_hold_ends_keep_alive(client: fairlock.Client) -> None:
    told: list[str] = []
    lock = client.acquire("key", lease=1, keep_alive=True, max_hold=0.1, on_lost=told.append)
    until(lambda: told == ["expired"])
    assert not lock.held


def test_a_cycle_through_on_lost_is_collected(client: fairlock.Client, other: fairlock.Client) -> None:
    class Work:
        def __init__(self) -> None:
            self.lock = client.acquire("key", on_lost=self.stop)

        def stop(self, reason: str) -> None: ...

    reference = weakref.ref(Work())
    gc.collect()
    assert reference() is None
    until(lambda: not other.inspect("key").held)


def test_many_threads_share_a_client(client: fairlock.Client) -> None:
    counter = 0

    def work() -> None:
        nonlocal counter
        for _ in range(50):
            with client.lock("counter"):
                before = counter
                time.sleep(0)
                counter = before + 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter == 400


def test_a_thread_waits_while_another_releases(client: fairlock.Client, other: fairlock.Client) -> None:
    """Nobody could release if the one who waits held the GIL."""
    lock = client.acquire("key")
    got: list[fairlock.Lock] = []
    thread = threading.Thread(target=lambda: got.append(client.acquire("key")))
    thread.start()
    until(lambda: other.inspect("key").waiters == 1)
    lock.release()
    thread.join()
    assert got[0].token > lock.token


def test_connect_says_at_once_whether_there_is_a_server(client: fairlock.Client) -> None:
    client.connect()


def test_reprs(client: fairlock.Client, fairlock_server: fairlock.Server) -> None:
    lock = client.acquire("key")
    assert repr(lock) == f"<fairlock.Lock 'key' token {lock.token} held>"
    lock.release()
    assert "not held" in repr(lock)
    assert fairlock_server.address in repr(client)
    assert fairlock_server.address in repr(fairlock_server)
