"""A store of its own for each test: a copy of an empty one, for to create all tables takes longer than to copy them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.client import Store
from tests.fakes.month_store import write_month


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty") / "store"
    Store.open(folder).close()
    return folder


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(empty_store, tmp_path / "store", symlinks=True)  # its links are relative
    with Store.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture(scope="session")
def month_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a month of 200 jobs, for who asks and writes nothing."""
    folder = tmp_path_factory.mktemp("month") / "store"
    write_month(folder)
    return folder
