"""Which SQL a reader may run.

The engine's own read-only mode (`readonly = 1`, which chDB honours per handle) refuses writes, table functions
such as `file()` and `url()`, and changes of settings. It lets `KILL QUERY`, `USE` and `INTO OUTFILE` through,
so those are refused here, with a message that says what is allowed.
"""

from __future__ import annotations

import re

from pacehound.errors import InvalidInput

ALLOWED = ("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS")

# Quoted text and comments, in the order ClickHouse reads them; what is left is keywords, names and numbers.
_OPAQUE = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` | --[^\n]* | \#[!\ ][^\n]* | /\*.*?\*/""",
    re.VERBOSE | re.DOTALL,
)


def only_reads(sql: str) -> str:
    """The one statement in `sql`, without the semicolon at its end.

    Raises
    ------
    InvalidInput
        It is empty, more than one statement, or not a question.

    Examples
    --------
    >>> only_reads("SELECT ';' AS x; ")
    "SELECT ';' AS x"
    >>> only_reads("DROP TABLE calls")
    Traceback (most recent call last):
        ...
    pacehound.errors.InvalidInput: DROP is not allowed: the store is read-only here; use SELECT, WITH, SHOW, DESCRIBE, \
DESC, EXPLAIN, EXISTS

    """
    bare = _OPAQUE.sub(_blank, sql)
    end = len(bare.rstrip("; \t\r\n"))
    # A comment after the last word is blank in `bare` and would swallow the FORMAT clause that the client adds.
    statement, bare = sql[:end], bare[:end]
    if not bare.strip():
        raise InvalidInput("there is no SQL in the query; write for example: SELECT count() FROM calls")
    if ";" in bare:
        raise InvalidInput("more than one statement; send them one by one")
    words = re.findall(r"[A-Za-z_]+", bare)
    first = words[0].upper() if words else ""
    if first not in ALLOWED:
        raise InvalidInput(
            f"{first or bare.split()[0]} is not allowed: the store is read-only here; use {', '.join(ALLOWED)}"
        )
    if re.search(r"\bINTO\s+OUTFILE\b", bare, re.IGNORECASE):
        raise InvalidInput("INTO OUTFILE is not allowed: the answer comes back to whoever asked; redirect the output")
    if re.search(r"\bFORMAT\s+[A-Za-z]+\s*$", bare, re.IGNORECASE):
        raise InvalidInput("FORMAT at the end is not allowed: the answer comes back as a table; use --json for JSON")
    return statement


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    filler = "'" if text[0] in "'\"`" else " "
    return filler * len(text)
