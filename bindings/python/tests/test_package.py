"""What is shipped: types, the wheel, the pytest fixture, the examples, the README."""

import asyncio
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

import fairlock
from fairlock import _asyncio
from fairlock import _fairlock as native
from conftest import run

HERE = pathlib.Path(__file__).parent.parent
EXAMPLES = HERE.parent.parent / "examples" / "python"
ALLOWED = HERE / "tests" / "stubtest.txt"
WHEELS = sorted((pathlib.Path(sys.prefix) / "wheels").glob("*.whl"))


def checked(*command: str | os.PathLike[str], **options: object) -> str:
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, **options  # type: ignore[call-overload]
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return str(result.stdout)


@pytest.mark.timeout(300)
def test_the_stubs_are_true() -> None:
    checked("-m", "mypy.stubtest", "fairlock", "--allowlist", ALLOWED, "--ignore-unused-allowlist", cwd=HERE)


@pytest.mark.timeout(300)
def test_package_examples_and_tests_are_typed() -> None:
    checked("-m", "mypy", "--strict", "--no-incremental", "--package", "fairlock", cwd=EXAMPLES)
    checked("-m", "mypy", "--strict", "--no-incremental", *EXAMPLES.glob("*.py"), cwd=EXAMPLES)
    checked("-m", "mypy", "--strict", "--no-incremental", ".", HERE / "bench.py", cwd=HERE / "tests")


def test_types_are_marked() -> None:
    assert (pathlib.Path(fairlock.__file__).parent / "py.typed").exists()
    assert fairlock.__version__ == importlib.metadata.version("fairlock")
    assert sorted(fairlock.__all__) == list(fairlock.__all__)
    for name in fairlock.__all__:
        assert getattr(fairlock, name) is not None
    with pytest.raises(AttributeError):
        fairlock.no_such_name  # noqa: B018


@pytest.mark.skipif(not WHEELS, reason="installed in another way than by test.sh")
def test_the_wheel_serves_every_python_from_3_10_and_is_small() -> None:
    (wheel,) = WHEELS
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"fairlock/py.typed", "fairlock/_fairlock.pyi", "fairlock/_fairlock.abi3.so"} <= set(names)
    assert not [name for name in names if name.split("/")[-1].startswith(("test_", "conftest"))]
    if "debug" not in fairlock.__file__:
        assert wheel.stat().st_size <= 4 << 20


def test_the_fixture_is_there_for_users(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_user.py").write_text(
        """
import fairlock

def test_it(fairlock_server):
    with fairlock.Client(fairlock_server.address) as client, client.lock("key"):
        assert client.inspect("key").held
"""
    )
    out = checked("-X", "dev", "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, cwd=tmp_path)
    assert "1 passed" in out


OUTPUTS = {
    "first_lock": "holding example:order:42, token {number}\nreleased example:order:42\n",
    "scheduled_job": "nightly report: running it\n" + "nightly report: has run already, nothing to do\n" * 2 + "runs: 1\n",
    "leader_election": "alpha leads\nalpha still leads after more than a lease\nalpha steps down\nbeta leads\nbeta steps down\n",
    "protected_resource": "slow writer: token {number}\nfast writer: token {number}\nfast writer: written\n"
    "slow writer: refused, a newer token has been here\nslow writer: had lost the lock (expired)\n",
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_examples(address: str, name: str) -> None:
    out = checked("-X", "dev", "-W", "error", EXAMPLES / f"{name}.py", env={**os.environ, "FAIRLOCK_SERVERS": address})
    assert re.sub(r"token \d+", "token {number}", out) == OUTPUTS[name]


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(OUTPUTS)


def test_the_first_program_of_the_readme_runs(address: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    blocking, awaiting = blocks[:2]
    blocking = blocking.replace("127.0.0.1:7420", address)
    awaiting = awaiting.replace("127.0.0.1:7420", address)
    script = f"""
import asyncio
def write_order(token): print("written")
{blocking}
async def write_order(token): print("written")
async def main():
{"".join(f"    {line}" + chr(10) for line in awaiting.splitlines())}
asyncio.run(main())
"""
    result = run(script, address)
    assert (result.returncode, result.stdout, result.stderr) == (0, "written\nwritten\n", "")


@pytest.mark.parametrize("while_blocking", [False, True])
def test_a_panic_is_an_error_that_can_be_caught(capfd: pytest.CaptureFixture[str], while_blocking: bool) -> None:
    panic = getattr(native, "_panic", None)
    if panic is None:
        pytest.skip("a release build has no way to panic")
    with pytest.raises(fairlock.InternalError, match="on purpose"):
        panic(while_blocking)


def test_a_future_that_cannot_be_settled_harms_no_other(address: str) -> None:
    class NotAFuture:
        def done(self) -> bool:
            raise ArithmeticError

    async def main() -> None:
        async with fairlock.AsyncClient(address) as client:
            await client.connect()
            loop = asyncio.get_running_loop()
            bridge = _asyncio._bridge_of(loop)
            failed: list[object] = []
            loop.set_exception_handler(lambda _, context: failed.append(type(context["exception"])))
            native.start_status(client._client, bridge, NotAFuture())
            assert (await client.status()).role == "active"
            assert failed == [ArithmeticError]

    asyncio.run(main())
