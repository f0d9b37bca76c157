"""Which format a file has is told by what is in it; every reader looks at every line, and the fullest one wins."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Protocol

from collector.importers.step_logs.csv_steps import CsvReader
from collector.importers.step_logs.lines import DamagedFile, Lines, opened
from collector.importers.step_logs.megatron import MegatronReader
from collector.importers.step_logs.mlperf import MlperfReader
from collector.importers.step_logs.nanogpt import NanogptReader
from collector.importers.step_logs.titan import TitanReader
from collector.importers.step_logs.train_time import TrainTimeReader
from pacehound.errors import InvalidInput
from pacehound.model.step_log import StepLog

LOOK_BYTES = 64 * 1024 * 1024
"""How much of a file is looked through for the first line of a known format."""

_HEAD_BYTES = 64 * 1024
_CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 0.02  # of the bytes that are not NUL; a log has next to none, numbers and archives have a tenth


class RefusedLog(InvalidInput):
    """A file from which no step time can be read; the message says why."""


class LogReader(Protocol):
    """Reads one format, line by line, in memory that grows with the steps and not with the file."""

    @property
    def format(self) -> str:
        """The format's name."""
        ...

    @property
    def about(self) -> str:
        """The format in words."""
        ...

    @property
    def is_recognised(self) -> bool:
        """Whether a line of this format has been seen."""
        ...

    def take(self, number: int, line: str) -> None:
        """Look at the next line; one that cannot be read is counted, never an exception."""
        ...

    def logs(self, path: str) -> list[StepLog]:
        """What has been read."""
        ...

    def refusal(self) -> str:
        """Why a file of this format has no step times."""
        ...


Readers = tuple[LogReader, ...]


def readers() -> Readers:
    """A fresh reader of each known format."""
    return MegatronReader(), MlperfReader(), TrainTimeReader(), NanogptReader(), TitanReader(), CsvReader()


def known_formats() -> str:
    """The formats in words, for messages."""
    return ", ".join(reader.about for reader in readers())


def read_step_logs(path: Path) -> list[StepLog]:
    """The step times of a file: one log, or one per rank.

    Parameters
    ----------
    path
        A file, plain or compressed (gzip, bzip2, xz, zstd).

    Raises
    ------
    RefusedLog
        The file cannot be read or no step time is in it.

    """
    try:
        with path.open("rb") as raw:
            return step_logs(raw, str(path))
    except OSError as error:
        raise RefusedLog(error.strerror or str(error)) from error
    except RefusedLog:
        raise
    except InvalidInput as error:
        raise RefusedLog(str(error)) from error


def step_logs(raw: io.BufferedReader, path: str) -> list[StepLog]:
    r"""The same for a stream of bytes that is called `path`.

    >>> table = io.BytesIO(b"step,step_time_s\n1,0.5\n2,0.5\n")
    >>> log, = step_logs(io.BufferedReader(table), "steps.csv")
    >>> log.format, log.step.tolist()
    ('csv', [1, 2])
    """
    lines = Lines(opened(raw))
    head = lines.head(_HEAD_BYTES)
    if _looks_binary(head) and not _recognised(_fed(readers(), Lines(io.BytesIO(head)))[0]):
        raise RefusedLog("the file is binary, no log")
    every, damage = _fed(readers(), lines)
    found = max((reader.logs(path) for reader in every), key=lambda logs: sum(map(len, logs)))
    if not found:
        raise RefusedLog(_why_nothing(every, lines, damage))
    extra = _notes(lines, damage)
    return [dataclasses.replace(log, notes=(*log.notes, *extra)) for log in found]


def _looks_binary(head: bytes) -> bool:
    told = len(head) - head.count(0)
    return len(_CONTROLS.findall(head)) > _MOST_CONTROLS * told


def _fed(every: Readers, lines: Lines) -> tuple[Readers, str]:
    """Readers that have seen every line, and what was wrong with the file."""
    try:
        for line in lines:
            for reader in every:
                reader.take(lines.number, line)
            if lines.bytes_read > LOOK_BYTES and not _recognised(every):
                break
    except DamagedFile as error:
        return every, str(error)
    return every, ""


def _recognised(every: Readers) -> list[LogReader]:
    return [reader for reader in every if reader.is_recognised]


def _why_nothing(every: Readers, lines: Lines, damage: str) -> str:
    if not lines.bytes_read:
        return damage or "the file is empty"
    if recognised := _recognised(every):
        reason = "; ".join(reader.refusal() for reader in recognised)
    else:
        where = f"the first {LOOK_BYTES >> 20} MiB" if lines.bytes_read > LOOK_BYTES else f"{lines.number} lines"
        reason = f"no known format in {where}; known are {known_formats()}"
    return f"{damage}; {reason}" if damage else reason


def _notes(lines: Lines, damage: str) -> tuple[str, ...]:
    notes = () if not lines.overlong else (f"{lines.overlong} lines of more than 1 MiB were passed over",)
    return (*notes, damage) if damage else notes
