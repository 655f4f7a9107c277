"""The client for asyncio: the same calls, cancelling, and event loops that come and go."""

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

import fairlock
from conftest import run, until
from fairlock._asyncio import _bridge_of

Main = Callable[..., Coroutine[Any, Any, Any]]
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """`asyncio.run` with each kind of loop."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        loop = LOOPS[request.param]()
        try:
            return loop.run_until_complete(main)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run


async def event(condition: Callable[[], Coroutine[Any, Any, object]]) -> None:
    async with timeout():
        while not await condition():
            await asyncio.sleep(0.002)


def timeout(limit: float = 20) -> Any:
    if sys.version_info >= (3, 11):
        return asyncio.timeout(limit)

    class NoLimit:
        async def __aenter__(self) -> None: ...
        async def __aexit__(self, *_: object) -> None: ...

    return NoLimit()


def test_a_scope_holds_the_lock_and_releases_it(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            await client.connect()
            async with client.lock("order:42", lease=20, wait=5) as lock:
                assert isinstance(lock, fairlock.AsyncLock)
                assert (lock.key, lock.lease, lock.held) == ("order:42", 20, True)
                assert 15 < lock.remaining <= 20
                state = await client.inspect("order:42")
                assert state.held and state.token == lock.token
                assert await client.try_acquire("order:42") is None
                assert f"<fairlock.AsyncLock 'order:42' token {lock.token} held>" == repr(lock)
            assert not lock.held
            assert not (await client.inspect("order:42")).held
            async with await client.acquire("order:42") as lock:
                await lock.keep(60)
                assert lock.lease == 60
            assert await lock.release() is True
            lock_or_none = await client.try_acquire("order:42")
            assert lock_or_none is not None
            assert await client.keep("order:42", lock_or_none.token, 70) is True
            assert await client.release("order:42", lock_or_none.token) is True
            assert await lock_or_none.release() is False

    loops(main())


def test_operators_calls(address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address, name="me") as client:
            lock = await client.acquire(b"\xff")
            waiting = asyncio.create_task(client.acquire(b"\xff"))
            await event(lambda: inspected(client, b"\xff", waiters=1))
            waiters = await client.waiters(b"\xff", limit=5)
            assert (waiters.total, waiters.first[0].name) == (1, "me")
            page = await client.locks(b"\xff")
            assert [(held.key, held.token) for held in page.locks] == [(b"\xff", lock.token)]
            assert (await client.status()).waiting == 1
            waiting.cancel()

    asyncio.run(main())


async def inspected(client: fairlock.AsyncClient, key: str | bytes, **expected: object) -> bool:
    state = await client.inspect(key)
    return all(getattr(state, name) == value for name, value in expected.items())


def test_a_scope_releases_after_an_error_and_never_hides_it(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            with pytest.raises(ZeroDivisionError):
                async with client.lock("key"):
                    1 / 0  # noqa: B018
            assert await inspected(client, "key", held=False)
            scope = client.lock("key")
            for _ in range(2):
                async with scope:
                    with pytest.raises(RuntimeError, match="entered already"):
                        await scope.__aenter__()
            with pytest.raises(RuntimeError, match="not been entered"):
                await scope.__aexit__(None, None, None)

    loops(main())


def test_three_hundred_cancelled_acquires_leave_nothing(loops: Any, address: str, client: fairlock.Client) -> None:
    """Cancelled before the first step, while waiting, and just when the grant comes."""

    async def main() -> None:
        async with fairlock.AsyncClient(address) as us:
            for number in range(300):
                held = await us.acquire("key") if number % 3 else None
                task = asyncio.create_task(us.acquire("key"))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                if held and number % 3 == 1:
                    await held.release()
                task.cancel()
                try:
                    lock = await task
                except asyncio.CancelledError:
                    pass
                else:
                    await lock.release()
                if held and number % 3 == 2:
                    await held.release()
            await event(lambda: inspected(us, "key", held=False, waiters=0))

    loops(main())
    assert client.status()[4:6] == (0, 0)


def test_a_grant_that_nobody_takes_is_released_at_once(address: str, client: fairlock.Client) -> None:
    """Cancelled after the result was set, before the task ran; its traceback keeps every object alive."""

    async def main() -> None:
        async with fairlock.AsyncClient(address) as us:
            task = asyncio.create_task(us.acquire("key"))
            await asyncio.sleep(0)
            # The loop is blocked until the grant is there, so future and cancelling meet in one turn.
            until(lambda: client.inspect("key").held)
            time.sleep(0.05)
            asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(task.cancel))
            try:
                lock = await task
            except asyncio.CancelledError as kept:
                await event(lambda: inspected(us, "key", held=False))
                del kept
            else:
                await lock.release()

    for _ in range(20):
        asyncio.run(main())


def test_wait_for(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            async with client.lock("key"):
                with pytest.raises((asyncio.TimeoutError, TimeoutError)):
                    await asyncio.wait_for(client.acquire("key"), 0.05)
                await event(lambda: inspected(client, "key", waiters=0))
            lock = await asyncio.wait_for(client.acquire("key"), 5)
            await lock.release()

    loops(main())


def test_a_cancelled_scope_releases(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            entered = asyncio.Event()

            async def work() -> None:
                async with client.lock("key"):
                    entered.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await inspected(client, "key", held=False)

    loops(main())


def test_cancelling_a_release_does_not_stop_it(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            lock = await client.acquire("key")
            task = asyncio.create_task(lock.release())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await event(lambda: inspected(client, "key", held=False))

    loops(main())


def test_three_runs_in_one_process_keep_no_descriptor(address: str) -> None:
    client = fairlock.AsyncClient(address)

    async def main() -> None:
        async with client.lock("key"):
            pass
        await asyncio.gather(*(work(f"key:{number}") for number in range(20)))

    async def work(key: str) -> None:
        async with client.lock(key):
            await asyncio.sleep(0)

    counts = []
    for kind in [*LOOPS.values()] * 3:
        loop = kind()
        loop.run_until_complete(main())
        loop.close()
        del loop
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    for _ in range(3):
        asyncio.run(main())
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1:] == counts[1:2] * (len(counts) - 1)
    asyncio.run(client.close())


def test_a_forgotten_loop_takes_its_waiting_tasks_along(address: str, client: fairlock.Client) -> None:
    """Not even cancelled, just dropped, as a program does that stops its loop in the middle."""
    us = fairlock.AsyncClient(address)
    held = client.acquire("key")

    def use() -> "weakref.ref[asyncio.AbstractEventLoop]":
        loop = asyncio.new_event_loop()
        task = loop.create_task(us.acquire("key"))
        while not client.inspect("key").waiters:
            loop.run_until_complete(asyncio.sleep(0.002))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        return weakref.ref(loop)

    loop = use()
    gc.collect()
    assert loop() is None
    until(lambda: client.inspect("key").waiters == 0)
    held.release()


def test_a_grant_for_a_closed_loop_is_released(address: str, client: fairlock.Client) -> None:
    """Nobody runs who could take it, though the task is still there."""
    us = fairlock.AsyncClient(address)
    held = client.acquire("key")
    loop = asyncio.new_event_loop()
    task = loop.create_task(us.acquire("key"))
    while not client.inspect("key").waiters:
        loop.run_until_complete(asyncio.sleep(0.002))
    loop.close()
    held.release()
    with client.lock("key", wait=20):
        pass
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    asyncio.run(us.close())


def test_a_client_outlives_the_loop_that_it_was_made_on(loops: Any, address: str) -> None:
    """That loop read its sockets; from now on the client's own thread does, and no answer waits for a dead loop."""

    async def make() -> fairlock.AsyncClient:
        client = fairlock.AsyncClient(address)
        async with client.lock("key"):
            return client

    async def use() -> float:
        begun = time.monotonic()
        for _ in range(100):
            async with client.lock("key"):
                pass
        return time.monotonic() - begun

    client = loops(make())
    for _ in range(2):
        assert loops(use()) < 2
    loops(client.close())


def test_a_release_does_not_wait_for_the_end_of_a_long_turn(loops: Any, address: str, client: fairlock.Client) -> None:
    """What tasks ask for in one turn of the loop leaves together at its end, but a task that blocks holds up nobody."""
    got: list[float] = []

    def wait() -> None:
        with client.lock("key"):
            got.append(time.monotonic())

    async def main() -> None:
        async with fairlock.AsyncClient(address) as us:
            await us.connect()
            lock = await us.acquire("key")
            thread = threading.Thread(target=wait)
            thread.start()
            await event(lambda: inspected(us, "key", waiters=1))
            release = lock.release()
            release.send(None)
            begun = time.monotonic()
            time.sleep(2)
            thread.join()
            assert got[0] - begun < 1.5
            release.close()

    loops(main())


def test_two_loops_in_two_threads_share_a_client(address: str) -> None:
    client = fairlock.AsyncClient(address)
    counter = 0

    async def main() -> None:
        nonlocal counter
        for _ in range(50):
            async with client.lock("counter"):
                before = counter
                await asyncio.sleep(0)
                counter = before + 1

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter == 200


def test_lost_is_told_to_all_who_wait_and_none_after_a_release(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client, fairlock.AsyncClient(address) as operator:
            told: list[str] = []
            lock = await client.acquire("key", lease=1, keep_alive=True, on_lost=told.append)
            waiting = [asyncio.create_task(lock.lost()) for _ in range(3)]
            for _ in range(3):
                with pytest.raises((asyncio.TimeoutError, TimeoutError)):
                    await asyncio.wait_for(lock.lost(), 0.01)
            await operator.release("key", lock.token)
            assert await asyncio.gather(*waiting) == ["taken"] * 3
            assert await lock.lost() == "taken"
            assert told == ["taken"]
            assert await lock.release() is False

            lock = await client.acquire("key", on_lost=told.append)
            waiter = asyncio.create_task(lock.lost())
            await asyncio.sleep(0)
            await lock.release()
            assert await waiter is None
            assert told == ["taken"]

    loops(main())


@pytest.mark.parametrize("lost", [True, False])
def test_lost_is_told_on_every_loop_that_waits(address: str, lost: bool) -> None:
    """A lock may be waited for on several event loops, each in a thread of its own; all hear of its end, whichever came first."""
    loops = [asyncio.new_event_loop() for _ in range(3)]
    threads = [threading.Thread(target=loop.run_forever) for loop in loops]
    for thread in threads:
        thread.start()

    def on(loop: asyncio.AbstractEventLoop, work: Any) -> "concurrent.futures.Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def none() -> None:
        pass

    with fairlock.Client(address) as operator:
        client = fairlock.AsyncClient(address)
        lock = on(loops[0], client.acquire("key")).result(20)
        waiting = []
        for loop in [*loops, *loops]:
            waiting.append(on(loop, lock.lost()))
            # It waits once the loop has done something that came later.
            on(loop, none()).result(20)
        if lost:
            assert operator.release("key", lock.token)
            # Told when the client asks for it the next time.
            with pytest.raises(fairlock.LockLost):
                on(loops[2], lock.keep()).result(20)
        else:
            assert on(loops[2], lock.release()).result(20) is True
        expected = "taken" if lost else None
        assert [waiter.result(20) for waiter in waiting] == [expected] * 6
        assert on(loops[1], lock.lost()).result(20) == expected
        on(loops[0], client.close()).result(20)
    for loop, thread in zip(loops, threads):
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def test_on_lost_is_called_on_the_loop(address: str) -> None:
    async def main() -> None:
        told = asyncio.Event()
        thread = threading.get_ident()

        def on_lost(reason: str) -> None:
            assert asyncio.get_running_loop() is loop and threading.get_ident() == thread
            told.set()

        loop = asyncio.get_running_loop()
        async with fairlock.AsyncClient(address) as client:
            lock = await client.acquire("key", lease=0.2, on_lost=on_lost)
            await told.wait()
            assert not lock.held

    asyncio.run(main())


def test_keep_alive_goes_on_while_the_loop_is_blocked(address: str, client: fairlock.Client) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as us:
            async with us.lock("key", lease=1, keep_alive=True) as lock:
                time.sleep(2.5)
                assert lock.held
                assert client.inspect("key").token == lock.token

    asyncio.run(main())


def test_keep_alive_goes_on_while_calls_are_started_and_the_loop_that_read_runs_no_more(address: str) -> None:
    first = asyncio.new_event_loop()

    async def made() -> fairlock.AsyncClient:
        client = fairlock.AsyncClient(address)
        await client.connect()
        for _ in range(20):
            async with client.lock("other"):
                pass
        return client

    async def main(client: fairlock.AsyncClient) -> None:
        async with client, client.lock("key", lease=1, keep_alive=True) as lock:
            end = time.monotonic() + 2.5
            tries = []
            while time.monotonic() < end:
                tries.append(asyncio.create_task(client.try_acquire("key")))
                await asyncio.sleep(0.01)
            answered = sum(task.done() for task in tries)
            assert lock.held
            # The latest of them need not have been answered.
            assert answered > len(tries) / 2
            async with timeout():
                assert await asyncio.gather(*tries) == [None] * len(tries)

    client = first.run_until_complete(made())
    asyncio.run(main(client))
    first.close()


def test_a_panic_while_the_loop_reads_keeps_no_answer_back(loops: Any, address: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        async with fairlock.AsyncClient(address) as client:
            await client.connect()
            bridge = _bridge_of(loop)
            panic = getattr(bridge, "_panic", None)
            if panic is None:
                pytest.skip("a release build has no way to panic")
            for _ in range(20):
                panic()
                async with timeout(2):
                    async with client.lock("key"):
                        pass
        assert all(isinstance(context["exception"], fairlock.InternalError) for context in reported)
        assert reported

    loops(main())


def test_a_dropped_lock_is_released(loops: Any, address: str) -> None:
    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            lock = await client.acquire("key")
            del lock
            await event(lambda: inspected(client, "key", held=False))

    loops(main())


def test_waiters_are_served_in_order(loops: Any, address: str) -> None:
    async def main() -> None:
        order = []
        async with fairlock.AsyncClient(address) as client:

            async def work(number: int) -> None:
                async with client.lock("key"):
                    order.append(number)

            first = await client.acquire("key")
            tasks = []
            for number in range(20):
                tasks.append(asyncio.create_task(work(number)))
                await event(lambda number=number: inspected(client, "key", waiters=number + 1))  # type: ignore[misc]
            await first.release()
            await asyncio.gather(*tasks)
        assert order == list(range(20))

    loops(main())


def test_a_call_that_is_never_awaited_sends_nothing(address: str, client: fairlock.Client) -> None:
    async def main() -> None:
        us = fairlock.AsyncClient(address)
        us.acquire("key").close()
        await us.close()

    asyncio.run(main())
    assert not client.inspect("key").held


def test_importing_the_package_does_not_import_asyncio() -> None:
    result = run("import sys, fairlock; print('asyncio' in sys.modules); fairlock.AsyncClient; print('asyncio' in sys.modules)")
    assert result.stdout.split() == ["False", "True"], result.stderr
