"""The migration files and what is still to be done."""

import pytest

from pacehound.errors import InvalidInput
from storage.migrate import known_migrations, pending, split_statements


def test_migrations_are_numbered_from_one_without_gaps():
    assert [m.number for m in known_migrations()] == list(range(1, len(known_migrations()) + 1))


def test_every_statement_can_be_run_twice():
    for migration in known_migrations():
        for statement in migration.statements:
            assert "IF NOT EXISTS" in statement or statement.startswith("CREATE OR REPLACE"), statement[:80]


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
