"""Ctrl+C ends a blocking call in well under half a second, and leaves nothing in the queue."""

import signal
import time

import pytest

import fairlock
from conftest import said, start, until

ACQUIRE = """
    import sys, time, fairlock
    client = fairlock.Client(name="interrupted")
    client.connect()
    print("ready", flush=True)
    try:
        with client.lock("key", **eval(sys.argv[1])):
            print("got it", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        # The client works on.
        with client.lock("another key"):
            print("and well", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("options", ["{}", "{'wait': 60}", "{'keep_alive': True}"])
def test_control_c_ends_an_acquire(address: str, client: fairlock.Client, options: str) -> None:
    with client.lock("key"):
        process = start(ACQUIRE, address, options)
        said(process, "ready")
        until(lambda: client.inspect("key").waiters == 1)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        said(process, "interrupted")
        assert time.monotonic() - begun < 0.5
        said(process, "and well")
        until(lambda: client.inspect("key").waiters == 0)
    assert not client.inspect("key").held
    out, error = process.communicate(input="")
    assert (out, error, process.returncode) == ("", "", 0)


def test_control_c_with_nobody_to_talk_to() -> None:
    process = start(
        """
        import fairlock
        client = fairlock.Client("127.0.0.1:1", connect_timeout=60)
        print("ready", flush=True)
        try:
            client.acquire("key", wait=60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    said(process, "ready")
    # Long enough to be inside the call; there is no server to ask.
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    said(process, "interrupted")
    assert time.monotonic() - begun < 0.5
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == 0


def test_a_signal_handler_that_does_not_raise_ends_nothing(address: str, client: fairlock.Client) -> None:
    lock = client.acquire("key")
    process = start(
        """
        import signal, fairlock
        signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
        with fairlock.Client().lock("key"):
            print("got it", flush=True)
        """,
        address,
    )
    until(lambda: client.inspect("key").waiters == 1)
    process.send_signal(signal.SIGUSR1)
    said(process, "handled")
    assert client.inspect("key").waiters == 1
    lock.release()
    said(process, "got it")
    assert process.wait(10) == 0
    process.communicate()


def test_control_c_a_hundred_times_just_when_the_lock_comes(address: str, client: fairlock.Client) -> None:
    """Whenever the signal comes, the lock is either held by a scope, which releases it, or by nobody."""
    process = start(
        """
        import os, signal, sys, threading, time, fairlock
        client = fairlock.Client()
        client.connect()
        interrupts = 0
        main = threading.main_thread().ident
        begun = time.monotonic()
        while interrupts < 100 and time.monotonic() - begun < 20:
            delay = (interrupts % 50) / 50000
            timer = threading.Thread(target=lambda: (time.sleep(delay), signal.pthread_kill(main, signal.SIGINT)))
            try:
                try:
                    timer.start()
                    while True:
                        with client.lock("key"):
                            pass
                finally:
                    timer.join()
            except KeyboardInterrupt:
                interrupts += 1
        print(interrupts, flush=True)
        """,
        address,
    )
    out, error = process.communicate(timeout=50)
    assert (out, error, process.returncode) == ("100\n", "", 0)
    until(lambda: not client.inspect("key").held)
    assert client.inspect("key").waiters == 0


def test_asyncio_run_and_control_c(address: str, client: fairlock.Client) -> None:
    with client.lock("key"):
        process = start(
            """
            import asyncio, fairlock
            async def main():
                async with fairlock.AsyncClient() as client:
                    async with client.lock("key"):
                        pass
            try:
                asyncio.run(main())
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """,
            address,
        )
        until(lambda: client.inspect("key").waiters == 1)
        process.send_signal(signal.SIGINT)
        said(process, "interrupted")
        assert process.wait(10) == 0
        assert process.communicate() == ("", "")
        assert client.inspect("key").waiters == 0
