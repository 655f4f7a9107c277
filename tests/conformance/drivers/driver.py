"""The driver in Python: `driver.py sync` with blocking calls, `driver.py asyncio` with tasks.

It does what each line of its standard input says and prints what the caller got, and decides nothing about
locks; the drivers in the other languages read the same lines and print the same.
"""

import asyncio
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote_to_bytes

import fairlock

# Who runs this in the background may have it ignore Ctrl+C.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Body(Exception):
    """What goes wrong inside a scope."""


class Command:
    """A line of the runner: `play verb op argument…`."""

    def __init__(self, line: str) -> None:
        self.play, self.verb, *rest = line.split(" ")
        self.op = rest[0] if rest else ""
        self.arguments = rest[1:]

    def option(self, name: str) -> str | None:
        for word in self.arguments:
            if word.startswith(name + "="):
                return word[len(name) + 1 :]
        return None

    def seconds(self, name: str) -> float | None:
        milliseconds = self.option(name)
        return None if milliseconds is None else int(milliseconds) / 1000

    @property
    def key(self) -> str | bytes:
        return decode(self.arguments[0])

    def client_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "name": text(self.option("name")),
            "secret": text(self.option("secret")),
            "connect_timeout": self.seconds("connect_timeout"),
            "retry_for": self.seconds("retry_for"),
            "follow_moves": self.option("follow_moves"),
        }
        return {name: value for name, value in options.items() if value is not None}

    def lock_options(self) -> dict[str, Any]:
        options = {name: self.seconds(name) for name in ("lease", "wait", "max_hold")}
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if "keep_alive" in self.arguments:
            given["keep_alive"] = True
        return given


class Play:
    """A client and what it holds."""

    def __init__(self, number: str) -> None:
        self.number = number
        self.client: Any = None
        self.locks: dict[str, Any] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.fence = fairlock.Fence()
        self.ended: set[str] = set()

    def say(self, op: str, text: str) -> None:
        if not text.startswith("lost "):
            self.ended.add(op)
        say(f"{self.number} {op} {text}")

    def granted(self, op: str, lock: Any) -> None:
        self.locks[op] = lock
        self.say(op, "none" if lock is None else f"granted {encode(lock.key)} {lock.token}")

    def on_lost(self, op: str) -> Callable[[str], None]:
        return lambda reason: self.say(op, f"lost {reason}")

    def obey_at_once(self, command: Command) -> bool:
        """What needs no waiting is the same in both modes."""
        if command.verb == "remaining":
            remaining = self.locks[command.arguments[0]].remaining
            self.say(command.op, f"remaining {int(remaining * 1000)}")
        elif command.verb == "held":
            self.say(command.op, f"held {word(self.locks[command.arguments[0]].held)}")
        elif command.verb == "fence":
            try:
                self.fence.check(command.key, int(command.arguments[1]))
                self.say(command.op, "passed")
            except Exception as error:
                self.say(command.op, spell(error))
        else:
            return False
        return True


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def word(value: bool) -> str:
    return "true" if value else "false"


def text(spelling: str | None) -> str | None:
    return None if spelling is None else unquote_to_bytes(spelling).decode()


def decode(spelling: str) -> str | bytes:
    key = unquote_to_bytes(spelling)
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def encode(key: str | bytes) -> str:
    raw = key.encode() if isinstance(key, str) else key
    escaped = (b"%%%02X" % byte if byte <= 0x20 or byte in (0x25, 0x7F) else bytes([byte]) for byte in raw)
    return b"".join(escaped).decode(errors="replace")


def spell(error: BaseException) -> str:
    match error:
        case Body():
            return "failed body"
        case fairlock.Refused():
            return f"error refused {error.code}"
        case fairlock.LockLost():
            return f"error lock_lost {error.reason}"
        case KeyboardInterrupt() | asyncio.CancelledError():
            return "error cancelled"
    names = {
        fairlock.WaitTimeout: "wait_timeout",
        fairlock.ConnectionFailed: "connection_failed",
        fairlock.ReleaseUnconfirmed: "release_unconfirmed",
        fairlock.StaleToken: "stale_token",
        fairlock.ClientClosed: "closed",
        fairlock.ForkedClient: "forked",
        ValueError: "invalid_argument",
        TypeError: "invalid_argument",
    }
    for kind, name in names.items():
        if isinstance(error, kind):
            return f"error {name}"
    return f"error {type(error).__name__} {error}"


def sync_call(play: Play, command: Command) -> None:
    """One operation, on whatever thread it is called."""
    op = command.op
    try:
        match command.verb:
            case "open":
                servers = (command.option("servers") or "").split(",")
                play.client = fairlock.Client(servers, **command.client_options())
                play.say(op, "open")
            case "acquire":
                options = command.lock_options()
                play.granted(op, play.client.acquire(command.key, on_lost=play.on_lost(op), **options))
            case "try":
                options = command.lock_options()
                play.granted(op, play.client.try_acquire(command.key, on_lost=play.on_lost(op), **options))
            case "release":
                released = play.locks[command.arguments[0]].release()
                play.say(op, f"released {word(released)}")
            case "keep":
                play.locks[command.arguments[0]].keep(command.seconds("lease"))
                play.say(op, "kept")
            case "leave":
                with play.locks.pop(command.arguments[0]):
                    pass
                play.say(op, "left")
            case "fail":
                with play.locks.pop(command.arguments[0]):
                    raise Body
            case "close":
                play.client.close()
                play.say(op, "closed")
            case verb:
                play.say(op, f"unknown verb {verb}")
    except (Exception, KeyboardInterrupt) as error:
        play.say(op, spell(error))


def run_sync() -> None:
    """Every call blocks a thread. What is to be cancelled blocks the main thread, which alone hears Ctrl+C."""
    for_main: queue.SimpleQueue[tuple[Play, Command] | None] = queue.SimpleQueue()

    def read() -> None:
        plays: dict[str, Play] = {}
        for line in sys.stdin:
            command = Command(line.rstrip("\n"))
            play = plays.setdefault(command.play, Play(command.play))
            if command.verb == "end":
                # Closed, so that it does not go on connecting to a server that is gone.
                over = plays.pop(command.play)
                if over.client is not None:
                    threading.Thread(target=over.client.close, daemon=True).start()
            elif command.verb == "cancel":
                # Nobody presses Ctrl+C to stop what has ended, and it would stop this program's next line.
                if command.op not in play.ended:
                    os.kill(os.getpid(), signal.SIGINT)
            elif command.verb == "open":
                sync_call(play, command)
            elif "cancellable" in command.arguments:
                for_main.put((play, command))
            elif not play.obey_at_once(command):
                threading.Thread(target=sync_call, args=(play, command), daemon=True).start()
        for_main.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            order = for_main.get()
            if order is None:
                break
            sync_call(*order)
        except KeyboardInterrupt:
            # The call had ended before it could be cancelled.
            continue
    # Calls that still block must not keep the process.
    os._exit(0)


async def async_call(play: Play, command: Command) -> None:
    """One operation, as a task."""
    op = command.op
    try:
        match command.verb:
            case "open":
                servers = (command.option("servers") or "").split(",")
                play.client = fairlock.AsyncClient(servers, **command.client_options())
                play.say(op, "open")
            case "acquire":
                options = command.lock_options()
                play.granted(op, await play.client.acquire(command.key, on_lost=play.on_lost(op), **options))
            case "try":
                options = command.lock_options()
                play.granted(op, await play.client.try_acquire(command.key, on_lost=play.on_lost(op), **options))
            case "release":
                released = await play.locks[command.arguments[0]].release()
                play.say(op, f"released {word(released)}")
            case "keep":
                await play.locks[command.arguments[0]].keep(command.seconds("lease"))
                play.say(op, "kept")
            case "leave":
                async with play.locks.pop(command.arguments[0]):
                    pass
                play.say(op, "left")
            case "fail":
                async with play.locks.pop(command.arguments[0]):
                    raise Body
            case "close":
                await play.client.close()
                play.say(op, "closed")
            case verb:
                play.say(op, f"unknown verb {verb}")
    except (Exception, asyncio.CancelledError) as error:
        play.say(op, spell(error))


async def run_asyncio() -> None:
    """Every call is a task of one loop."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    plays: dict[str, Play] = {}
    while (line := await lines.get()) is not None:
        command = Command(line)
        play = plays.setdefault(command.play, Play(command.play))
        if command.verb == "end":
            over = plays.pop(command.play)
            # The runner listens no more; what is left is given up like any forgotten task.
            over.say = lambda op, text: None  # type: ignore[method-assign]
            for task in over.tasks.values():
                task.cancel()
            if over.client is not None:
                # Closed, so that it does not go on connecting to a server that is gone.
                over.tasks["end"] = loop.create_task(over.client.close())
        elif command.verb == "cancel":
            play.tasks[command.op].cancel()
        elif not play.obey_at_once(command):
            call: Coroutine[Any, Any, None] = async_call(play, command)
            play.tasks[command.op] = loop.create_task(call)


say("ready")
if sys.argv[1:] == ["sync"]:
    run_sync()
elif sys.argv[1:] == ["asyncio"]:
    asyncio.run(run_asyncio())
else:
    sys.exit("driver.py sync | asyncio")
