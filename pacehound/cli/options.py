"""Options that several commands take, and how an answer for a script is printed."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pacehound.cli.own_packages import SIBLINGS
from pacehound.model.plain import plain

set_option = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a setting; may be repeated."
)


def _absolute(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    return (value or default_store()).expanduser().absolute()


store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    callback=_absolute,
    help="Folder of the history.  [default: pacehound in your XDG data home]",
)
DEFAULT_PAGE = "127.0.0.1:4319"
page_option = click.option(
    "--page",
    metavar="ADDRESS",
    help=f"HOST:PORT of the page.  [default: {DEFAULT_PAGE}, or any free port where that one is taken]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object on stdout.")


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WRITE_IT = "write a number and s, m, h or d, as in 60s, 2m, 1d"


class Lasting(click.ParamType):
    """So many seconds, as a number or with a unit: 10, 0.5, 60s, 2m, 1d.

    >>> Lasting(1.0, 600.0).convert("2m", None, None)
    120.0
    """

    name = "duration"

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]?)", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration; {_WRITE_IT}", param, ctx)
        lasting_s = float(found[1]) * _UNITS_S[found[2] or "s"]
        if not self._least_s <= lasting_s <= self._most_s:
            between = f"between {self._least_s:g} and {self._most_s:g} seconds"
            self.fail(f"{value} is not {between}; {_WRITE_IT}", param, ctx)
        return lasting_s


_MOST_RANKS = 16_384
"""`pacehound.model.orders.MOST_RANKS`."""


class Ranks(click.ParamType):
    """Numbers of ranks, one by one or from one to another: 3,8-11.

    >>> Ranks().convert("3,8-11", None, None)
    (3, 8, 9, 10, 11)
    """

    name = "ranks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Each once, in order."""
        found: set[int] = set()
        for part in str(value).split(","):
            ends = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
            first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
            if first > last:
                self.fail(f"{part!r} names no ranks; write numbers, as in 3,8-11", param, ctx)
            if last - first >= _MOST_RANKS:
                self.fail(f"{part} are more than {_MOST_RANKS} ranks", param, ctx)
            found.update(range(first, last + 1))
        return tuple(sorted(found))


LONGEST_S = 9_999 * 86_400.0
"""Of what is looked back on, or kept silent: nobody means more than 27 years."""


def default_store() -> Path:
    """A folder of the user's XDG data home."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data_home) if data_home.startswith("/") else Path.home() / ".local" / "share") / "pacehound"


def say(text: str, *, err: bool = False) -> None:
    """A line for a person; whatever of others is in it is shown as text."""
    click.echo(plain(text), err=err)


def print_json(answer: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    import msgspec

    click.echo(msgspec.json.encode(answer).decode())


def log_to_stderr() -> None:
    """Our own events, of each kind one line per interval; of the libraries only what is wrong."""
    from pacehound.clock import SystemClock
    from pacehound.pages.terminal import PlainFormatter
    from pacehound.runtime.log_limit import LogLimit

    limit = LogLimit(SystemClock())
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(limit)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in ("pacehound", *SIBLINGS):
        logging.getLogger(name).setLevel(logging.INFO)
    atexit.register(_tell, limit.rest)


def _tell(rest: Callable[[], str]) -> None:
    if words := rest():
        logging.getLogger("pacehound").warning("the log ends %s", words)
