"""fork: the child works with connections of its own, never touches what is its parent's, and nothing hangs.

All in scripts of their own, without `-W error`: newer Pythons warn of every fork of a process that has threads.
"""

import os

import pytest

import fairlock
from conftest import run

PREAMBLE = """
import asyncio, gc, multiprocessing, os, sys, threading, time, warnings
import fairlock
warnings.simplefilter("ignore", DeprecationWarning)

def child(work):
    '''Runs work in a fork; the child has to end well, with everything that Python does at an exit.'''
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except SystemExit:
            raise
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        sys.exit(0)
    return pid

def joined(pid, limit=10):
    end = time.monotonic() + limit
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"the child ended with {status}"
            return
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.002)

def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)

def raises(error, call):
    try:
        call()
    except error:
        return True
    raise AssertionError(f"no {error.__name__}")
"""


def check(source: str, address: str, limit: float = 30) -> None:
    result = run(PREAMBLE + source + "\nprint('done')\n", address, limit=limit, strict=False)
    # A child that ends by sys.exit has no part in what its parent prints later.
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert result.stdout.endswith("done\n")


def test_the_parents_client_works_in_the_child_as_somebody_else(address: str) -> None:
    check(
        """
client = fairlock.Client(name="the family")
lock = client.acquire("parent")
parent_address = client.inspect("parent").address

def work():
    assert client.try_acquire("parent") is None
    with client.lock("child"):
        assert client.inspect("child").address != parent_address
        with fairlock.Client().lock("new client of the child"):
            pass

joined(child(work))
assert lock.held and client.inspect("parent").token == lock.token
assert lock.release() is True
with client.lock("child"): pass
""",
        address,
    )


def test_the_child_is_told_of_its_own_losses_while_the_parents_teller_is_busy(address: str) -> None:
    check(
        """
told, go_on = [], threading.Event()
def on_lost(reason):
    told.append((reason, os.getpid()))
    assert go_on.wait(10)

def lose(count):
    with fairlock.Client() as client:
        locks = [client.acquire(f"{os.getpid()}:{nth}", on_lost=on_lost) for nth in range(count)]
    return locks

def work():
    go_on.set()
    told.clear()
    mine = lose(2)
    until(lambda: told == [("closed", os.getpid())] * 2)

locks = lose(2)
until(lambda: told)
joined(child(work))
assert len(told) == 1
go_on.set()
until(lambda: told == [("closed", os.getpid())] * 2)
""",
        address,
    )


def test_the_child_never_releases_its_parents_locks(address: str) -> None:
    check(
        """
client = fairlock.Client()
locks = {"lock": client.acquire("parent", on_lost=print), "alive": client.acquire("alive", lease=1, keep_alive=True)}
scope = client.lock("scope")
inner = scope.__enter__()
tokens = [lock.token for lock in (*locks.values(), inner)]

def work():
    lock = locks["lock"]
    assert not lock.held and lock.remaining == 0
    assert (lock.key, lock.token) == ("parent", tokens[0])
    raises(fairlock.ForkedClient, lock.release)
    raises(fairlock.ForkedClient, lock.keep)
    raises(fairlock.ForkedClient, lambda: scope.__exit__(None, None, None))
    del lock
    locks.clear()
    gc.collect()
    with client.lock("child"): pass
    client.close()

for _ in range(3):
    joined(child(work))
    joined(child(lambda: os._exit(0)))
    joined(child(lambda: None))
    joined(child(client.close))
time.sleep(1.2)
assert all(lock.held for lock in locks.values())
assert [client.inspect(key).token for key in ("parent", "alive", "scope")] == tokens
""",
        address,
    )


def test_a_call_that_waits_in_the_parent_is_not_disturbed(address: str, client: fairlock.Client) -> None:
    lock = client.acquire("key")
    check(
        """
client = fairlock.Client()
got = []
thread = threading.Thread(target=lambda: got.append(client.acquire("waiting")))
held = fairlock.Client().acquire("waiting")
thread.start()
until(lambda: client.inspect("waiting").waiters == 1)
for _ in range(5):
    joined(child(lambda: fairlock.Client().lock("child").__enter__().release()))
    joined(child(lambda: client.lock("child").__enter__().release()))
assert client.inspect("waiting").waiters == 1
held.release()
thread.join()
assert got[0].held
""",
        address,
    )
    lock.release()


def test_a_fork_inside_a_waiting_call_of_another_thread(address: str) -> None:
    """Two hundred forks under load: threads that wait, threads that work, keep-alive, garbage."""
    count = int(os.environ.get("FAIRLOCK_TEST_FORKS", "40"))
    check(
        f"""
client = fairlock.Client()
stop = False
def load(key):
    while not stop:
        with client.lock(key, lease=1, keep_alive=True, on_lost=print):
            pass
threads = [threading.Thread(target=load, args=(f"load:{{number % 2}}",)) for number in range(4)]
for thread in threads: thread.start()

def work():
    with client.lock("child"): pass
    with fairlock.Client().lock("child"): pass
    gc.collect()

for number in range({count}):
    joined(child(work), 20)
stop = True
for thread in threads: thread.join()
assert client.locks().locks == []
""",
        address,
        limit=300,
    )


def test_a_grandchild(address: str) -> None:
    check(
        """
client = fairlock.Client()
lock = client.acquire("parent")

def grandchild():
    raises(fairlock.ForkedClient, lock.release)
    with client.lock("grandchild"): pass

def work():
    mine = client.acquire("child")
    joined(child(grandchild))
    joined(child(lambda: raises(fairlock.ForkedClient, mine.release)))
    assert mine.release() is True

joined(child(work))
assert lock.release() is True
""",
        address,
    )


def test_a_fork_while_an_event_loop_runs(address: str) -> None:
    check(
        """
us = fairlock.AsyncClient()

async def in_the_child(read_by_loop):
    async with us.lock("child"), read_by_loop.lock("other"):
        pass
    async with fairlock.AsyncClient() as mine, mine.lock("child"):
        pass

async def main():
    read_by_loop = fairlock.AsyncClient()
    async with us.lock("parent", lease=1, keep_alive=True) as lock, read_by_loop.lock("too"):
        waiting = asyncio.create_task(us.acquire("parent"))
        while not (await us.inspect("parent")).waiters:
            await asyncio.sleep(0.002)
        for _ in range(5):
            # What a forked worker does: it runs a loop of its own, and never goes back into the one that it came from.
            def work():
                asyncio._set_running_loop(None)
                asyncio.run(in_the_child(read_by_loop))
                gc.collect()
                os._exit(0)
            pid = child(work)
            await asyncio.to_thread(joined, pid)
            assert lock.held
            assert (await us.inspect("parent")).waiters == 1
            async with read_by_loop.lock("child"):
                pass
    await (await waiting).release()

asyncio.run(main())
""",
        address,
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(address: str, method: str, tmp_path: os.PathLike[str]) -> None:
    script = os.path.join(tmp_path, "script.py")
    with open(script, "w") as file:
        file.write(
            PREAMBLE
            + f"""
client = fairlock.Client()

def count(path):
    for _ in range(20):
        with client.lock("counter"):
            with open(path) as file: number = int(file.read())
            with open(path, "w") as file: file.write(str(number + 1))

if __name__ == "__main__":
    path = sys.argv[1]
    with open(path, "w") as file: file.write("0")
    lock = client.acquire("parent")
    context = multiprocessing.get_context({method!r})
    workers = [context.Process(target=count, args=(path,)) for _ in range(3)]
    for worker in workers: worker.start()
    count(path)
    for worker in workers: worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with open(path) as file: assert file.read() == "80"
    with context.Pool(2) as pool:
        pool.map(count, [path] * 4)
    with open(path) as file: assert file.read() == "160"
    assert lock.release() is True
    print("done")
"""
        )
    source = f"import runpy, sys; sys.argv = [{script!r}, {script + '.txt'!r}]; runpy.run_path({script!r}, run_name='__main__')"
    if method != "fork":
        source = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {script!r}, {script + '.txt'!r}]))"
    result = run(source, address, limit=60, strict=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_the_childs_last_breath_does_not_touch_the_parents_connections(address: str) -> None:
    """The parent's connections must still be up, not merely made anew: its waiting call keeps its place."""
    check(
        """
client = fairlock.Client(name="parent")
other = fairlock.Client(name="other")
held = other.acquire("key")
before = client.status().connections
thread = threading.Thread(target=lambda: client.acquire("key").release())
thread.start()
until(lambda: other.waiters("key").total == 1)
address = other.waiters("key").first[0].address
for work in [client.close, lambda: sys.exit(0), lambda: os._exit(0), gc.collect]:
    joined(child(work))
assert other.waiters("key").first[0].address == address
held.release()
thread.join()
""",
        address,
    )


def test_a_server_of_the_parent_is_left_alone() -> None:
    check(
        """
server = fairlock.Server()
client = fairlock.Client(server.address)
lock = client.acquire("key")

def work():
    global server
    raises(fairlock.ForkedClient, server.stop)
    del server
    gc.collect()

joined(child(work))
joined(child(lambda: None))
assert client.inspect("key").held
assert lock.release() is True
server.stop()
""",
        "",
    )
