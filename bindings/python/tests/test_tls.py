"""TLS through the real package: what the options do is proved in the core, here that they arrive."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

import fairlock

CERTIFICATES = os.environ.get("FAIRLOCK_TEST_CERTIFICATES", "")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run([CERTIFICATES, str(folder)], check=True)
    return folder


def test_a_lock_over_tls(files: Path) -> None:
    with (
        fairlock.Server(tls_cert=files / "server.pem", tls_key=files / "server.key") as server,
        fairlock.Client(server.address, ca_file=files / "ca.pem") as client,
    ):
        with client.lock("order:42", wait=5) as lock:
            assert lock.token > 0
            assert client.try_acquire("order:42") is None

        async def work() -> None:
            options = {"ca_file": str(files / "ca.pem"), "server_name": "localhost"}
            async with fairlock.AsyncClient(server.address, **options) as client:  # type: ignore[arg-type]
                locks = await asyncio.gather(*(client.acquire(f"key {n}") for n in range(200)))
                await asyncio.gather(*(lock.release() for lock in locks))

        asyncio.run(work())


def test_both_sides_show_a_certificate(files: Path) -> None:
    with fairlock.Server(
        tls_cert=files / "server.pem",
        tls_key=files / "server.key",
        tls_client_ca=files / "ca.pem",
    ) as server:
        own = {"cert_file": files / "client.pem", "key_file": files / "client.key"}
        with fairlock.Client(server.address, ca_file=files / "ca.pem", **own) as client:  # type: ignore[arg-type]
            client.acquire("k").release()
        with (
            fairlock.Client(server.address, ca_file=files / "ca.pem", connect_timeout=1) as client,
            pytest.raises(fairlock.ConnectionFailed, match="wants a certificate of this client"),
        ):
            client.connect()


def test_a_server_that_is_not_trusted_and_one_without_tls(files: Path) -> None:
    with (
        fairlock.Server(tls_cert=files / "stranger.pem", tls_key=files / "stranger.key") as server,
        fairlock.Client(server.address, ca_file=files / "ca.pem", connect_timeout=1) as client,
        pytest.raises(fairlock.ConnectionFailed, match="no CA that is known here has signed it"),
    ):
        client.connect()
    with (
        fairlock.Server() as plain,
        fairlock.Client(plain.address, ca_file=files / "ca.pem", connect_timeout=1) as client,
        pytest.raises(fairlock.ConnectionFailed, match="does not speak TLS"),
    ):
        client.connect()


def test_a_client_without_tls_is_told(files: Path) -> None:
    with (
        fairlock.Server(tls_cert=files / "server.pem", tls_key=files / "server.key") as server,
        fairlock.Client(server.address, tls=False) as client,
        pytest.raises(fairlock.Refused, match="this port speaks TLS"),
    ):
        client.connect()


def test_files_that_cannot_be_used_are_named(files: Path) -> None:
    with pytest.raises(ValueError, match="no-such.pem"):
        fairlock.Client("localhost", ca_file=files / "no-such.pem")
    with pytest.raises(ValueError, match="key_file"):
        fairlock.Client("localhost", ca_file=files / "ca.pem", cert_file=files / "client.pem")
    with pytest.raises(TypeError):
        fairlock.Client("localhost", tls="yes")  # type: ignore[arg-type]
    with pytest.raises(OSError if os.name == "nt" else fairlock.Error, match="it expired"):
        fairlock.Server(tls_cert=files / "expired.pem", tls_key=files / "expired.key")


def test_a_silent_server_is_given_up(files: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = "{}:{}".format(*silent.getsockname())
        with (
            fairlock.Client(address, ca_file=files / "ca.pem", connect_timeout=0.5) as client,
            pytest.raises(fairlock.ConnectionFailed, match="no answer to the TLS handshake"),
        ):
            client.connect()
