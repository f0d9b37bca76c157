"""One store for many tests: opened once, emptied after each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pacehound.settings import StoreSettings
from storage.client import Store
from storage.retention import apply_retention
from tests.fakes.shared_run import folder_of_the_run, locked

_TABLES = """
    SELECT name, create_table_query AS made_by, total_rows
    FROM system.tables WHERE database = currentDatabase() ORDER BY name
"""
_KEPT = "schema_migrations"


def copy_store(store: Path, to: Path) -> Path:
    """A store that nobody has open, a second time."""
    shutil.copytree(store, to, symlinks=True)  # its links are relative
    return to


def made_once(make: Callable[[Path], None], name: str, own: Path) -> Path:
    """A folder of this worker's: a copy of what the first worker of this run has made."""
    run = folder_of_the_run(own)
    with locked(run / f"{name}.lock"):
        made = run / name
        if not made.exists():
            half = run / f"{name}.half"
            shutil.rmtree(half, ignore_errors=True)  # of a worker that died
            make(half)
            half.rename(made)
    return copy_store(made, own / f"{name} of this worker")


def make_empty(folder: Path) -> None:
    with Store.open(folder) as store:
        apply_retention(store, StoreSettings())  # as every writer does before its first row


def made_by(store: Store) -> dict[str, str]:
    """How each table was made."""
    return {row["name"]: row["made_by"] for row in store.query(_TABLES).to_pylist()}


def forget_rows(store: Store) -> None:
    """All rows, and with them the tokens of their blocks."""
    for row in store.query(_TABLES).to_pylist():
        if row["total_rows"] and row["name"] != _KEPT:
            store.command(f"TRUNCATE TABLE {row['name']}")


class SharedStore:
    """A process has one engine, so it has to be closed before anything else opens a store.

    Parameters
    ----------
    empty
        A store that was made and closed: it is copied.
    folder
        Where the copy lies, once there is one.

    """

    def __init__(self, empty: Path, folder: Path) -> None:
        self._empty, self._folder = empty, folder
        self._store: Store | None = None
        self._as_made: dict[str, str] = {}

    def opened(self) -> Store:
        """The store; there is nothing in it."""
        if self._store is None:
            if not self._folder.exists():
                copy_store(self._empty, self._folder)
            self._store = Store.open(self._folder)
            self._as_made = made_by(self._store)
        return self._store

    def empty(self) -> None:
        """Forget all rows; the tables have to be as they were."""
        assert self._store is not None
        as_left = made_by(self._store)
        if as_left != self._as_made:
            self.close()
            shutil.rmtree(self._folder)
        assert as_left == self._as_made, "who alters tables takes `own_store`"
        forget_rows(self._store)

    def close(self) -> None:
        """Let go of the engine; what was opened is opened again when it is needed."""
        if self._store is not None:
            self._store.close()
        self._store = None
