"""The fixtures `fairlock_server` and `fairlock_cluster`: real nodes inside the test process, new for each test."""

from collections.abc import Iterator

import pytest

from . import Server
from .testing import Cluster


@pytest.fixture
def fairlock_server() -> Iterator[Server]:
    """A running node on a free port of 127.0.0.1; `fairlock_server.address` is what clients take."""
    with Server() as server:
        yield server


@pytest.fixture
def fairlock_cluster() -> Iterator[Cluster]:
    """Three running nodes; `fairlock_cluster.addresses` is what clients take."""
    with Cluster() as cluster:
        yield cluster
