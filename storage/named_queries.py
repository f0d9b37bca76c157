"""The files of `queries/`: their names, their SQL, and what each says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from pacehound.errors import InvalidInput


def named_query(name: str) -> str:
    """The SQL of `queries/<name>.sql`; `page/jobs` is that of `queries/page/jobs.sql`."""
    if name not in (names := query_names()):
        raise InvalidInput(f"there is no query {name!r}; there are {', '.join(names)}")
    return files("storage").joinpath("queries", *f"{name}.sql".split("/")).read_text(encoding="utf-8")


@cache
def query_names(folder: str = "") -> list[str]:
    """The names of `queries/*.sql` and of those in its folders; with `folder`, of those in it."""
    names = _names_in(files("storage").joinpath("queries"), "")
    return sorted(name for name in names if not folder or name.startswith(f"{folder}/"))


def query_about(name: str) -> str:
    """The first sentence of the comment above a query: what it answers."""
    lines = named_query(name).splitlines()
    above = lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))]
    return " ".join(line.removeprefix("--").strip() for line in above).partition(". ")[0].rstrip(".")


def _names_in(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names_in(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".sql"):
            yield prefix + entry.name.removesuffix(".sql")
