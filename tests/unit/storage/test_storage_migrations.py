"""The migration files and what is still to be done."""

import re

import pytest

from pacehound.errors import InvalidInput
from pacehound.model.codes import DTYPE_BYTES, DTYPES
from storage.migrate import known_migrations, pending, split_statements
from storage.schemas import CALL_MINUTES, CUTS, IDENTITY


def test_migrations_are_numbered_from_one_without_gaps():
    assert [m.number for m in known_migrations()] == list(range(1, len(known_migrations()) + 1))


def test_every_statement_can_be_run_twice():
    for migration in known_migrations():
        for statement in migration.statements:
            is_set = statement.startswith("ALTER TABLE") and " MODIFY SETTING " in statement
            assert "IF NOT EXISTS" in statement or statement.startswith("CREATE OR REPLACE") or is_set, statement[:80]


def test_every_table_drops_a_repeated_insert():
    """A materialized view's target too: a block that is dropped in its source is dropped there only with a window."""
    text = ";".join(statement for migration in known_migrations() for statement in migration.statements)
    for table in (*IDENTITY, CUTS, CALL_MINUTES):
        made = text.split(f"CREATE TABLE IF NOT EXISTS {table}\n")[1].split("CREATE ")[0]
        assert (
            f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 10000" in text
            or "SETTINGS non_replicated_deduplication_window = 10000" in made
        ), table


def test_sizes_in_the_rollup_are_those_of_the_codes():
    text = next(m for m in known_migrations() if m.number == 4).statements
    view = next(s for s in text if s.startswith("CREATE MATERIALIZED VIEW"))
    names, widths = re.search(r"transform\(\s*toString\(dtype\),\s*\[(.*?)\],\s*\[(.*?)\],", view, re.DOTALL).groups()
    known = {name: width for name, width in zip(DTYPES, DTYPE_BYTES, strict=True) if width}
    assert dict(zip(re.findall(r"'(\w+)'", names), map(int, widths.split(",")), strict=True)) == known


def test_a_semicolon_inside_a_line_does_not_end_a_statement():
    assert split_statements("SELECT ';' AS a\n;\n-- SELECT 3;\nSELECT 2;") == ["SELECT ';' AS a", "SELECT 2"]


def test_only_what_was_not_applied_is_pending():
    known = known_migrations()
    assert pending([], known) == known
    assert pending([1], known) == known[1:]
    assert pending([m.number for m in known], known) == []


def test_a_store_of_a_newer_version_is_refused_with_its_number():
    with pytest.raises(InvalidInput, match="0999"):
        pending([1, 999], known_migrations())
