"""Stores for tests: one that all share, one of its own for who needs it, and one with a month of jobs.

To create all tables takes longer than to copy them, and to open a store longer than to empty it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from pacehound.cli.history import OpenedHistory
from storage.client import Store
from tests.fakes.month_store import write_month
from tests.fakes.shared_store import SharedStore, copy_store, made_once

_SHARED = pytest.StashKey[SharedStore]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """A process has one engine: where the next test does not share the store, it may open another."""
    yield
    shared = item.config.stash.get(_SHARED, None)
    if shared is not None and "shared_store" not in getattr(nextitem, "fixturenames", ()):
        shared.close()


@pytest.fixture(scope="session")
def shared_store(
    empty_store: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> SharedStore:
    shared = SharedStore(empty_store, tmp_path_factory.mktemp("shared") / "store")
    pytestconfig.stash[_SHARED] = shared
    return shared


@pytest.fixture
def store(shared_store: SharedStore) -> Iterator[Store]:
    """An empty store, for who writes and asks."""
    yield shared_store.opened()
    shared_store.empty()


@pytest.fixture
def own_store(empty_store: Path, tmp_path: Path) -> Iterator[Store]:
    """An empty store in `tmp_path / "store"`, for who closes it, opens it again or alters its tables."""
    with Store.open(copy_store(empty_store, tmp_path / "store")) as opened:
        yield opened


@pytest.fixture(scope="session")
def month_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a month of 200 jobs, for who asks and writes nothing."""
    return made_once(write_month, "month", tmp_path_factory.getbasetemp())


@pytest.fixture
def answering_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Commands that ask a store ask this one, that stays open, whichever they are told; nobody watches into it."""

    @contextlib.contextmanager
    def opened(*_: object) -> Iterator[OpenedHistory]:
        yield OpenedHistory(store)

    monkeypatch.setattr("pacehound.cli.history.history", opened)
    return store
