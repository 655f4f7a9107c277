"""The unit: right, as closed as it can be, and wide enough for the real server."""

import os
import re
import signal
import socket

import pytest
from conftest import BINARY, PACKAGING, loopback, need, run, skip, succeed

UNIT = PACKAGING / "systemd/fairlock.service"
SECRET = PACKAGING / "systemd/secret.conf"


def settings(path):
    """The assignments of a unit, in order."""
    return re.findall(r"^(\w+)=(.*)$", path.read_text(), re.M)


def value(name, path=UNIT):
    return [text for known, text in settings(path) if known == name][-1]


@pytest.fixture
def installed(tmp_path):
    """The unit as it is once the binary is where it says."""
    folder = tmp_path / "units"
    (folder / "fairlock.service.d").mkdir(parents=True)
    program = value("ExecStart").split()[0]
    (folder / "fairlock.service").write_text(UNIT.read_text().replace(program, str(BINARY)))
    (folder / "fairlock.service.d/secret.conf").write_text(SECRET.read_text())
    return folder / "fairlock.service"


def test_systemd_reads_the_unit_without_a_word(installed):
    need("systemd-analyze")
    done = run(
        "systemd-analyze", "verify", "--man=no", installed, env={"SYSTEMD_UNIT_PATH": f"{installed.parent}:"}
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    broken = installed.parent / "broken.service"
    broken.write_text(installed.read_text().replace("RestartSec=3", "RestartSec=soon"))
    assert run("systemd-analyze", "verify", "--man=no", broken).stderr, "systemd notices what is wrong"


def test_the_service_is_exposed_no_more_than_a_server_has_to_be(installed):
    need("systemd-analyze")
    # In tenths; without any of the unit's doors it would be 9.2.
    succeed("systemd-analyze", "security", "--offline=true", "--threshold=12", "--no-pager", installed)


def test_the_user_of_the_unit_is_made():
    if not run("systemd-sysusers", "--version").stdout:
        skip("there is no systemd-sysusers")
    made = run("systemd-sysusers", "--dry-run", PACKAGING / "systemd/sysusers.conf")
    assert made.returncode == 0 and value("User") in made.stdout + made.stderr


def started_as_the_unit_says(tmp_path, start, program):
    """The server with the arguments and the environment of the unit and of the drop-in for the secret."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/secret").write_text("open sesame\n")
    sample = PACKAGING.parent / "fairlock.sample.toml"
    (tmp_path / "etc/fairlock.toml").write_text(sample.read_text())
    places = {"%S": str(tmp_path), "%d": str(tmp_path / "etc"), "/etc/fairlock/": f"{tmp_path}/etc/"}
    # As systemd does for a unit with a StateDirectory.
    env = {"STATE_DIRECTORY": f"{tmp_path}/{value('StateDirectory')}"}
    for path in [UNIT, SECRET]:
        for name, text in settings(path):
            if name == "Environment":
                key, _, text = text.partition("=")
                env[key] = text
    arguments = value("ExecStart").split()[1:]
    for shown, real in places.items():
        env = {key: text.replace(shown, real) for key, text in env.items()}
        arguments = [word.replace(shown, real) for word in arguments]
    env["FAIRLOCK_LISTEN"] = f"{loopback()}:7420"
    socket_path = str(tmp_path / "notify")
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(socket_path)
    notify.settimeout(30)
    env["NOTIFY_SOCKET"] = socket_path
    return start(arguments, env, program=program), env, notify


def test_the_unit_starts_the_server_and_is_told_how_far_it_is(tmp_path, start):
    node, env, notify = started_as_the_unit_says(tmp_path, start, [BINARY])
    assert value("Type") == "notify"
    assert notify.recv(100) == b"READY=1"
    node.wait_until_it_listens()
    client = {"FAIRLOCK_SERVERS": env["FAIRLOCK_LISTEN"]}
    assert run(BINARY, "status", env=client).returncode != 0, "without the secret nobody is answered"
    succeed(BINARY, "status", env=client | {"FAIRLOCK_SECRET_FILE": env["FAIRLOCK_SECRET_FILE"]})
    assert (tmp_path / "fairlock/term").exists(), "the state folder is where the data goes"
    node.process.send_signal(getattr(signal, "SIG" + re.search(r"-(\w+)", value("ExecReload"))[1]))
    succeed(BINARY, "status", env=client | {"FAIRLOCK_SECRET_FILE": env["FAIRLOCK_SECRET_FILE"]})
    node.process.send_signal(signal.SIGTERM)
    assert notify.recv(100) == b"STOPPING=1"
    assert node.process.wait(30) == 0


def test_the_settings_file_has_the_last_word():
    """What the unit says in its environment would beat what operators are told to edit."""
    assert not [text for name, text in settings(UNIT) if name == "Environment"]


def test_what_may_be_there_later_is_tried_again_for_ever():
    assert value("StartLimitIntervalSec") == "0"
    done = run(BINARY, "serve", "--ephemeral", "--listen", "no-such-host.invalid:7420")
    assert done.returncode == 1 and "no-such-host.invalid" in done.stderr, "a name that is not known yet"
    assert value("Restart") == "on-failure"


def test_wrong_settings_end_the_service_for_good(tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("lisen = 1\n")
    assert run(BINARY, "serve", "--config", wrong).returncode == int(value("RestartPreventExitStatus"))


def allowed_calls():
    """The system calls that the unit's filters leave."""
    allowed = set()
    for name, text in settings(UNIT):
        if name != "SystemCallFilter":
            continue
        calls = set()
        for group in text.removeprefix("~").split():
            calls |= expand(group)
        allowed = allowed - calls if text.startswith("~") else allowed | calls
    # What `ExecStart` itself needs is allowed whatever a filter says.
    return allowed | {"execve", "exit", "exit_group", "getrlimit", "rt_sigreturn"}


def expand(group):
    if not group.startswith("@"):
        return {group}
    calls = set()
    for line in succeed("systemd-analyze", "syscall-filter", "--no-pager", group).splitlines()[1:]:
        word = line.split("#")[0].strip()
        if word:
            calls |= expand(word)
    return calls


def test_the_filter_lets_through_all_that_the_server_calls(tmp_path, start):
    need("systemd-analyze")
    trace = tmp_path / "trace"
    program = [need("strace"), "-f", "-qq", "-o", trace, BINARY]
    if run(*program[:-1], "true").returncode != 0:
        skip("strace may not trace here")
    node, env, notify = started_as_the_unit_says(tmp_path, start, program)
    assert notify.recv(100) == b"READY=1"
    client = {"FAIRLOCK_SERVERS": env["FAIRLOCK_LISTEN"], "FAIRLOCK_SECRET_FILE": env["FAIRLOCK_SECRET_FILE"]}
    succeed(BINARY, "run", "k", "--", "true", env=client)
    succeed(BINARY, "bench", "--workload", "pipelined", "--seconds", "0.2", env=client)
    pid = int(trace.read_text().split()[0])
    os.kill(pid, signal.SIGHUP)
    succeed(BINARY, "acquire", "k", env=client)
    os.kill(pid, signal.SIGTERM)
    assert node.process.wait(40) == 0
    lines = trace.read_text().splitlines()
    called = {found[1] for line in lines if (found := re.match(r"\d+ +(\w+)\(", line))}
    assert len(called) > 20
    assert called - allowed_calls() == set()
    # MemoryDenyWriteExecute
    assert not [line for line in lines if "PROT_WRITE|PROT_EXEC" in line]
