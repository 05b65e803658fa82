"""A Hub of its own for each test, and a client of it in an empty folder."""

import pytest

from tests.hub.running import Client, serving


@pytest.fixture
def hub():
    with serving() as running:
        yield running


@pytest.fixture
def client(hub, tmp_path):
    return Client(hub, tmp_path)
