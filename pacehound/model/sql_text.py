"""A string as ClickHouse writes it; what is inside may be anybody's job name."""

from __future__ import annotations


def sql_text(value: str) -> str:
    r"""A literal of SQL.

    >>> print(sql_text("it's \\"))
    'it\'s \\'
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
