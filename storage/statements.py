"""Which SQL a reader may run.

The engine's own read-only mode (`readonly = 1`, which chDB honours per handle) refuses writes, changes of settings, and
most table functions in a SELECT. It lets `KILL QUERY`, `USE` and `INTO OUTFILE` through; it opens the file or the
address of `DESCRIBE file(…)`, `DESCRIBE url(…)` and `s3(…)`; and the function `file(…)` reads any file. The embedded
engine has one user, who may do all that; grants of a users file would take part of it from him, not the function `file`
and not `INTO OUTFILE`. So it is refused here, by what the engine's own parser makes of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from pacehound.errors import InvalidInput

ALLOWED = ("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS")
SHOWN = ("TABLES", "FULL", "COLUMNS", "DATABASES", "INDEXES", "FUNCTIONS", "CREATE")

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
    # Where these open a text, the engine and the pattern above would disagree on what is quoted from there on.
    if odd := re.search(r"\$\w*\$|[^\x20-\x7e\t\r\n]", bare):
        raise InvalidInput(f"{odd.group()!r} outside quotes is not allowed: write texts as 'text', names as `name`")
    if ";" in bare:
        raise InvalidInput("more than one statement; send them one by one")
    words = re.findall(r"[A-Za-z_]+", bare)
    first = words[0].upper() if words else ""
    if first not in ALLOWED:
        raise InvalidInput(
            f"{first or bare.split()[0]} is not allowed: the store is read-only here; use {', '.join(ALLOWED)}"
        )
    if first == "SHOW" and (words[1].upper() if len(words) > 1 else "") not in SHOWN:
        raise InvalidInput(f"of SHOW only these are allowed: {', '.join(SHOWN)}")
    if re.search(r"\bINTO\s+OUTFILE\b", bare, re.IGNORECASE):
        raise InvalidInput("INTO OUTFILE is not allowed: the answer comes back to whoever asked; redirect the output")
    if re.search(r"\bFORMAT\s+[A-Za-z]+\s*$", bare, re.IGNORECASE):
        raise InvalidInput("FORMAT at the end is not allowed: the answer comes back as a table; use --json for JSON")
    return statement


TABLE_FUNCTIONS = frozenset({"numbers", "numbers_mt", "generate_series", "generateseries", "values", "view"})
"""Those that read nothing but their own arguments."""
SYSTEM_TABLES = frozenset(
    {"columns", "databases", "functions", "numbers", "numbers_mt", "one", "parts", "parts_columns", "tables"}
)
"""What the history is made of. Others show other people's questions, addresses, users or credentials."""
FUNCTIONS_THAT_REACH_OUT = frozenset(
    {
        "file", "airedact", "aisimilarity", "aifilter", "aiclassify", "aiembed", "aiextract", "aigenerate",
        "aitranslate", "catboostevaluate", "evalmlmethod", "reversednsquery",
        "joinget", "joingetornull", "getmacro", "getserversetting", "getserverport", "getclienthttpheader",
        "logtrace", "addresstoline", "addresstolinewithinlines", "addresstosymbol", "demangle", "tid",
        "sleep", "sleepeachrow", "generateserialid",
    }
)  # fmt: skip
"""Files, other machines, the process itself; and those that only hold up whoever asks next."""
_PREFIXES_THAT_REACH_OUT = ("ai", "dictget", "dicthas", "dictisin", "naivebayes", "regionto", "regionin", "regionhier")

_QUESTIONS = frozenset(
    {
        "SelectWithUnionQuery", "SelectIntersectExceptQuery", "SelectQuery", "DescribeQuery", "Explain",
        "ExistsTableQuery", "ExistsViewQuery", "ExistsDatabaseQuery", "ShowTables", "ShowColumns", "ShowIndexes",
        "ShowCreateTableQuery", "ShowCreateViewQuery", "ShowFunctions",
    }
)  # fmt: skip
_EXPLAINED = ("", "AST", "SYNTAX", "PLAN", "PIPELINE", "ESTIMATE", "QUERY TREE")
_NODE = re.compile(r"\s*(\w+)(?: (.*?))??(?: \(alias .*\))?(?: \(children \d+\))?$")


def only_the_history(tree: Sequence[str], table_functions: Collection[str]) -> None:
    """Refuse a statement that reads anything but tables of the history.

    Parameters
    ----------
    tree
        The lines of `EXPLAIN AST`. A name or a text with a line break in it adds lines, it never takes one away:
        so what is refused is refused wherever it stands.
    table_functions
        Those that the engine has, in lower case.

    Raises
    ------
    InvalidInput
        It does.

    Examples
    --------
    >>> tree = ["SelectWithUnionQuery (children 1)", " TableExpression (children 1)", "  Function FiLe (children 1)"]
    >>> only_the_history(tree, {"file"})
    Traceback (most recent call last):
        ...
    pacehound.errors.InvalidInput: FiLe() is not allowed: only the tables of the history can be read here (SHOW TABLES)

    """
    if tree[0].split()[0] not in _QUESTIONS:
        raise InvalidInput(f"{tree[0].split()[0]} is not allowed: ask with SELECT, or see SHOW TABLES and DESCRIBE")
    for line in tree:
        node = _NODE.match(line)
        kind, name = (node[1], node[2] or "") if node else ("", "")
        lowered = name.lower()
        database, _, table = lowered.partition(".")
        if kind == "Explain" and name.removeprefix("EXPLAIN").strip() not in _EXPLAINED:
            raise InvalidInput(f"{name} is not allowed: use EXPLAIN with {', '.join(filter(None, _EXPLAINED))}")
        if kind == "ColumnsApplyTransformer":
            # The tree does not say which function it applies.
            raise InvalidInput("APPLY is not allowed: name the columns and apply the function to each")
        reaches_out = lowered in FUNCTIONS_THAT_REACH_OUT or lowered.startswith(_PREFIXES_THAT_REACH_OUT)
        is_foreign_table = lowered in table_functions and lowered not in TABLE_FUNCTIONS | {"format"}
        # A function may be passed on by its name, as in arrayMap(file, …).
        if (kind == "Function" and (reaches_out or is_foreign_table)) or (
            kind == "Identifier" and lowered in FUNCTIONS_THAT_REACH_OUT
        ):
            raise InvalidInput(
                f"{name}() is not allowed: only the tables of the history can be read here (SHOW TABLES)"
            )
        if kind in ("TableIdentifier", "Identifier") and (
            (database == "system" and table and table.split(".")[0] not in SYSTEM_TABLES)
            or database == "information_schema"
        ):
            raise InvalidInput(
                f"{name} is not allowed: of the engine's own tables only {', '.join(sorted(SYSTEM_TABLES))} can be read"
            )


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    filler = "'" if text[0] in "'\"`" else " "
    return filler * len(text)
