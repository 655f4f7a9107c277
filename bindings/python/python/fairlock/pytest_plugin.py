"""The fixture `fairlock_server`: a real node inside the test process, new for each test."""

from collections.abc import Iterator

import pytest

from . import Server


@pytest.fixture
def fairlock_server() -> Iterator[Server]:
    """A running node on a free port of 127.0.0.1; `fairlock_server.address` is what clients take."""
    with Server() as server:
        yield server
