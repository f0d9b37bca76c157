"""Numbered migrations, each applied once; safe to run again, also after a stop half-way.

A migration is a file `NNNN_what.sql`. Every statement in it can be run twice (IF NOT EXISTS, OR REPLACE), and its
number is written down after its last statement. A file that has been released is never edited: the next change is
the next number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Protocol

import pyarrow as pa

from pacehound.errors import InvalidInput

_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    number UInt32,
    name String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered file and its statements."""

    number: int
    name: str
    statements: tuple[str, ...]


class Database(Protocol):
    """What a migration needs of a store."""

    def command(self, sql: str) -> None:
        """Run a statement."""
        ...

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Ask a question."""
        ...

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append rows."""
        ...


def known_migrations() -> list[Migration]:
    """The migrations of this build, in order."""
    found = []
    for file in sorted(files("storage").joinpath("migrations").iterdir(), key=lambda f: f.name):
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match:
            text = file.read_text(encoding="utf-8")
            found.append(Migration(number=int(match[1]), name=match[2], statements=tuple(split_statements(text))))
    return found


def split_statements(text: str) -> list[str]:
    r"""The statements of a file: each ends with a semicolon at the end of a line; `--` lines are comments.

    >>> split_statements("-- why\nSELECT ';';\nSELECT\n  2;\n")
    ["SELECT ';'", 'SELECT\n  2']
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    statements = re.split(r";\s*(?:\n|$)", "\n".join(lines))
    return [statement.strip() for statement in statements if statement.strip()]


def pending(applied: Sequence[int], known: Sequence[Migration]) -> list[Migration]:
    """What is still to be done.

    Raises
    ------
    InvalidInput
        The store has migrations that this build does not know.

    """
    newest = max((m.number for m in known), default=0)
    newer = sorted(set(applied) - {m.number for m in known})
    if newer:
        raise InvalidInput(
            f"the store has migration {newer[-1]:04d}, this version of Pacehound knows up to {newest:04d};"
            " use the version that wrote it, or a newer one"
        )
    return [m for m in known if m.number not in set(applied)]


def migrate(database: Database) -> list[int]:
    """Bring `database` to this version; returns the numbers that were applied now."""
    database.command(_TABLE)
    applied = database.query("SELECT number FROM schema_migrations FINAL ORDER BY number").column("number").to_pylist()
    done = []
    for migration in pending(applied, known_migrations()):
        for statement in migration.statements:
            database.command(statement)
        database.insert(
            "schema_migrations",
            pa.table({"number": pa.array([migration.number], pa.uint32()), "name": [migration.name]}),
        )
        done.append(migration.number)
    return done
