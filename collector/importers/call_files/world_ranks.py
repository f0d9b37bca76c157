"""World ranks from files that number ranks within each communicator alone.

NCCL knows no world: a rank is a place in a communicator, and what names a process everywhere is its host, its pid and
its device. torch.distributed makes the communicator of its default group with the places as world ranks. So the
places in the largest communicator are world ranks, if it is the only one of its size (or all of that size agree) and
no process is outside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from collector.importers.call_files.refusal import RefusedFile

Process = TypeVar("Process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places(Generic[Process]):
    """Who has which place in a communicator of `size` ranks; places of which nothing is known are left out."""

    size: int
    processes: Mapping[int, Process]


def world_by_process(communicators: Mapping[str, Places[Process]]) -> tuple[str, dict[Process, int]]:
    """The world communicator's name, and the world rank of each process.

    Raises
    ------
    RefusedFile
        No communicator has every process in it, or several disagree.

    Examples
    --------
    >>> world_by_process({"a": Places(size=2, processes={0: "p", 1: "q"}), "b": Places(size=1, processes={0: "q"})})
    ('a', {'p': 0, 'q': 1})
    """
    if not communicators:
        raise RefusedFile("there is no communicator in it")
    every = {process for of_one in communicators.values() for process in of_one.processes.values()}
    largest = max(of_one.size for of_one in communicators.values())
    found: dict[str, dict[Process, int]] = {}
    for name, of_one in communicators.items():
        by_process = {process: place for place, process in of_one.processes.items()}
        if of_one.size == largest and set(by_process) == every and len(by_process) == len(of_one.processes):
            found[name] = by_process
    if not found:
        said = f"the largest has {largest} ranks and not every process in it"
        raise RefusedFile(f"world ranks cannot be told: ranks stand for places in each communicator, and {said}")
    if any(ranks != next(iter(found.values())) for ranks in found.values()):
        raise RefusedFile(f"world ranks cannot be told: {len(found)} communicators of all processes number them apart")
    return next(iter(found.items()))
