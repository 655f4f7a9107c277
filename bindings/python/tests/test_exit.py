"""A client never keeps a process from ending, and never makes it end badly."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import fairlock
from conftest import run, start, until

PREAMBLE = "import asyncio, os, sys, threading, time, fairlock\n"

# What Python clears up last takes its time, and lets other threads run meanwhile.
SLOW_END = """
class Slow:
    def __del__(self, sleep=time.sleep): sleep(0.1)
sys.slow = Slow()
told = threading.Event()
def tell(reason):
    told.set()
    time.sleep(0.03)
"""

# How a script can end: name, what it does.
ENDINGS = {
    "idle": "client = fairlock.Client(); client.connect()",
    "never connected": "client = fairlock.Client()",
    "holding": "client = fairlock.Client(); lock = client.acquire(sys.argv[1])",
    "holding with keep-alive": "client = fairlock.Client(); lock = client.acquire(sys.argv[1], lease=1, keep_alive=True)",
    "holding with on_lost": "client = fairlock.Client(); lock = client.acquire(sys.argv[1], on_lost=print)",
    "inside a scope": "scope = fairlock.Client().lock(sys.argv[1]); lock = scope.__enter__()",
    "held by a cycle": "class Box: pass\nbox = Box(); box.box = box; box.lock = fairlock.Client().acquire(sys.argv[1])",
    "waiting in a daemon thread": """
client = fairlock.Client()
threading.Thread(target=client.acquire, args=("blocked",), daemon=True).start()
while not client.inspect("blocked").waiters: time.sleep(0.002)
""",
    "working in daemon threads": """
client = fairlock.Client()
def work():
    while True:
        with client.lock(sys.argv[1]): pass
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.02)
""",
    "sys.exit in a scope": "with fairlock.Client().lock(sys.argv[1]): sys.exit(0)",
    "os._exit in a scope": "with fairlock.Client().lock(sys.argv[1]): os._exit(0)",
    "asyncio, holding": """
async def main():
    global lock
    lock = await fairlock.AsyncClient().acquire(sys.argv[1])
asyncio.run(main())
""",
    "asyncio, waiting": """
async def main():
    client = fairlock.AsyncClient()
    task = asyncio.create_task(client.acquire("blocked"))
    while not (await client.inspect("blocked")).waiters: await asyncio.sleep(0.002)
asyncio.run(main())
""",
    "asyncio, a loop left lying about": """
loop = asyncio.new_event_loop()
client = fairlock.AsyncClient()
async def main():
    global task
    task = asyncio.ensure_future(client.acquire("blocked"))
    while not (await client.inspect("blocked")).waiters: await asyncio.sleep(0.002)
loop.run_until_complete(main())
task._log_destroy_pending = False
loop.close()
""",
    # A callback gives up the GIL, and the process ends before it has it back.
    "in the middle of being told of losses": SLOW_END
    + """
client = fairlock.Client()
locks = [client.acquire(f"{sys.argv[1]}:{n}", lease=0.1, on_lost=tell) for n in range(9)]
told.wait()
""",
    "in the middle of being told of losses on an event loop": SLOW_END
    + """
async def main():
    client = fairlock.AsyncClient()
    locks = [await client.acquire(f"{sys.argv[1]}:{n}", lease=0.1, on_lost=tell) for n in range(9)]
    await asyncio.sleep(60)
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
told.wait()
""",
    "in the middle of settling a future": SLOW_END
    + """
class Loop(asyncio.SelectorEventLoop):
    def call_soon(self, callback, *arguments, context=None):
        time.sleep(0.001)
        return super().call_soon(callback, *arguments, context=context)
async def main():
    client = fairlock.AsyncClient()
    while True:
        async with client.lock(sys.argv[1]): told.set()
threading.Thread(target=lambda: Loop().run_until_complete(main()), daemon=True).start()
told.wait()
""",
    "a running server": "server = fairlock.Server(); client = fairlock.Client(server.address); lock = client.acquire('key')",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_ends_at_once_with_code_0(address: str, client: fairlock.Client, ending: str) -> None:
    count = int(os.environ.get("FAIRLOCK_TEST_EXITS", "60")) // len(ENDINGS) + 1
    script = TIMED.format(script=PREAMBLE + ENDINGS[ending])
    took = []
    with client.lock("blocked", lease=600), ThreadPoolExecutor(2) as pool:
        for result in pool.map(lambda number: run(script, address, f"key:{number}", strict=not number), range(count)):
            assert (result.returncode, result.stderr) == (0, "")
            took.append(float(result.stdout))
    # Well under a second, but for what a busy machine does to one of them.
    assert sorted(took)[len(took) // 2] < 1 and max(took) < 5, took


# Each script is watched by another one: what counts is the time from its last line to its end.
TIMED = """
import subprocess, sys, time
script = {script!r} + "\\nprint(end='x', flush=True)"
flags = [flag for option in sys.warnoptions for flag in ("-W", option)]
process = subprocess.Popen([sys.executable, *flags, "-c", script, *sys.argv[1:]], stdout=subprocess.PIPE)
process.stdout.read(1)
begun = time.monotonic()
code = process.wait(20)
print(time.monotonic() - begun)
process.stdout.close()
sys.exit(code)
"""


def test_locks_of_a_script_that_ended_are_released(address: str, client: fairlock.Client) -> None:
    """Python clears up the objects of a script, and dropping a lock sends its release at once."""
    result = run("import fairlock; lock = fairlock.Client().acquire('key', lease=600)", address)
    assert (result.returncode, result.stderr) == (0, "")
    with client.lock("key", wait=10):
        pass


def test_a_waiting_main_thread_is_ended_by_sigterm(address: str, client: fairlock.Client) -> None:
    with client.lock("key"):
        process = start("import fairlock; fairlock.Client().acquire('key')", address)
        until(lambda: client.inspect("key").waiters == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == -signal.SIGTERM
        process.communicate()
        until(lambda: client.inspect("key").waiters == 0)
