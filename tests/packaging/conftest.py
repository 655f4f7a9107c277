"""Nodes in processes of their own, started as the files of packaging/ say, on loopback addresses of their own."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.dont_write_bytecode = True

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
BINARY = Path(os.environ["FAIRLOCK_BIN"])
# How long anything may take on a busy machine.
LIMIT = 40.0


def clean(extra=None):
    """The environment without what it says about fairlock, and with what a test says."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLOCK_")}
    return base | (extra or {})


def run(*command, env=None, **options):
    """Runs a program to its end."""
    return subprocess.run(
        [str(word) for word in command], env=clean(env), capture_output=True, text=True, timeout=LIMIT, **options
    )


def succeed(*command, **options):
    """Runs a program that has to succeed, and gives its output."""
    done = run(*command, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def skip(reason):
    """Skips a test, and says so where `tests/run` counts it."""
    if path := os.environ.get("FAIRLOCK_SKIPPED"):
        with open(path, "a") as file:
            file.write(f"packaging: {reason}\n")
    pytest.skip(reason)


def need(program):
    """The path of a program that not every machine has."""
    return shutil.which(program) or skip(f"there is no {program}")


def loopback():
    """An address of this machine that no other test uses: the whole of 127/8 is its own."""
    return ".".join(["127", *(str(random.randint(1, 254)) for _ in range(3))])


class Node:
    """A server in a process of its own; its log is kept."""

    def __init__(self, arguments, env, program=(BINARY,)):
        self.log = []
        self.process = subprocess.Popen(
            [*map(str, program), *map(str, arguments)],
            env=clean(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.listening = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            if line.startswith("listening on "):
                self.listening.set()
        self.listening.set()

    def wait_until_it_listens(self):
        self.listening.wait(LIMIT)
        assert any(line.startswith("listening on ") for line in self.log), "".join(self.log)
        return self

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT)


@pytest.fixture
def start():
    """Starts nodes that end with the test."""
    nodes = []

    def start(arguments, env, **options):
        nodes.append(Node(arguments, env, **options))
        return nodes[-1]

    yield start
    for node in nodes:
        if node.process.poll() is None:
            node.process.kill()
        node.process.wait(LIMIT)


def wait_for(question, what):
    """Asks until the answer is something."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if answer := question():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {LIMIT} s")


def roles(servers, env):
    """What each node of a cluster says that it is."""
    done = run(BINARY, "status", "--json", env=env | {"FAIRLOCK_SERVERS": ",".join(servers)})
    if done.returncode != 0:
        return {}
    return {node["server"]: node["role"] for node in json.loads(done.stdout)["nodes"]}


def whole_cluster_comes_up(servers, env):
    """Waits until the first of `servers` is active and has a copy at each of the others."""

    def question():
        done = run(BINARY, "status", "--json", env=env | {"FAIRLOCK_SERVERS": servers[0]})
        if done.returncode != 0:
            return None
        first = [node for node in json.loads(done.stdout)["nodes"] if node["server"] == servers[0]]
        return first and first[0]["role"] == "active" and len(first[0]["standbys"]) == len(servers) - 1

    wait_for(question, "the first node is active and the others have copies")


def dockerfile():
    """The instructions of the last stage of the Dockerfile, and its environment."""
    text = (PACKAGING / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    stage = text[text.rindex("\nFROM ") :].strip().splitlines()
    instructions = [line.split(None, 1) for line in stage if line.strip()]
    env = {}
    for word, rest in instructions:
        if word == "ENV":
            env |= dict(pair.split("=", 1) for pair in rest.split())
    return instructions, env


def command_of(instructions, word):
    """The words of CMD or ENTRYPOINT."""
    return next(json.loads(rest) for name, rest in instructions if name == word)
