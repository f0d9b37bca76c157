"""The rank that a file's name tells: `_dump_12`, `nccl_trace_rank_12`, `trace.rank12.json.gz`."""

from __future__ import annotations

import re
from pathlib import Path

_SUFFIXES = re.compile(r"(?:\.(?:json|jsonl|pkl|pickle|pt|bin|log|txt|dump|gz|bz2|xz|zst))+\Z", re.IGNORECASE)
_NAMED = re.compile(r"rank[_\-.=]?([0-9]{1,7})(?![0-9])", re.IGNORECASE)
_TRAILING = re.compile(r"(?:\A|[^0-9])([0-9]{1,7})\Z")


def rank_in_name(path: Path) -> int | None:
    """The number after the last `rank`, else the number at the end; `None` where there is neither.

    >>> rank_in_name(Path("_dump_12")), rank_in_name(Path("nccl_trace_rank_3")), rank_in_name(Path("a_rank7.json.gz"))
    (12, 3, 7)
    >>> rank_in_name(Path("dump.pkl")) is None
    True
    """
    stem = _SUFFIXES.sub("", path.name)
    if named := _NAMED.findall(stem):
        return int(named[-1])
    trailing = _TRAILING.search(stem)
    return None if trailing is None else int(trailing[1])
