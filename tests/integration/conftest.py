"""The product with stand-ins, made once per session; a home of its own per test."""

from __future__ import annotations

import os

import pytest

from bench.rig import broker as kafka_broker
from tests.fakes.shared_broker import shared_broker, used
from tests.fakes.shared_run import folder_of_the_run
from tests.fakes.shared_store import copy_store


def pytest_collection_modifyitems(items):
    """What is marked `kafka` runs wherever a broker can, and always in CI; the longest goes first.

    Else the other process of `make test` has nothing left to do beside it.
    """
    items.sort(key=lambda item: item.path.name != "test_fault_run.py")
    reason = kafka_broker.why_not()
    if reason and os.environ.get("CI") != "true":
        for item in items:
            if item.get_closest_marker("kafka"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def product_root(tmp_path_factory):
    from product import make_product

    return make_product(tmp_path_factory.mktemp("product"))


@pytest.fixture
def product(product_root, tmp_path):
    from product import Product

    (tmp_path / "home").mkdir()
    return Product(product_root, tmp_path / "home")


@pytest.fixture
def made_store(empty_store, tmp_path):
    """An empty store where the test's head looks for one: to make its tables would take it a second of processor."""
    return copy_store(empty_store, tmp_path / "store")


@pytest.fixture(scope="session")
def running_broker(tmp_path_factory):
    with shared_broker(folder_of_the_run(tmp_path_factory.getbasetemp()) / "broker") as made:
        yield made


@pytest.fixture
def broker(running_broker):
    """A real Kafka broker for all tests; each has a prefix of its own. Who kills a broker starts one for itself."""
    with used(running_broker):
        yield running_broker


@pytest.fixture
def broker_alone(running_broker):
    """The same, while no other test uses it: for who makes it stand still."""
    with used(running_broker, alone=True):
        yield running_broker
