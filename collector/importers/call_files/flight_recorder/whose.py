"""Whose dump it is: a dump does not say, its file's name does, and its contents can contradict."""

from __future__ import annotations

from collector.importers.call_files.file_names import rank_in_name
from collector.importers.call_files.flight_recorder.dump import Dump
from collector.importers.call_files.refusal import RefusedFile

_MOST_SHOWN = 8


def world_rank(dump: Dump) -> int:
    """The world rank whose recorder wrote it.

    A recorder knows the groups that its own rank has a communicator in and no others, and a point-to-point call
    names the place of its own rank first. So the rank is a member of every group, and what is left of the members
    may be one rank alone.

    Raises
    ------
    RefusedFile
        The name contradicts the contents, or neither tells.

    """
    possible = _possible(dump)
    named = rank_in_name(dump.path)
    if named is not None and possible is not None and named not in possible:
        told = sorted(possible)
        whose = f"rank {told[0]}" if len(told) == 1 else f"one of ranks {told[:_MOST_SHOWN]}" if told else "no one rank"
        raise RefusedFile(f"the file's name says rank {named}, its groups and calls are those of {whose}")
    if named is not None:
        return named
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    raise RefusedFile("whose dump it is cannot be told: put the rank into the file's name (dump_12, trace_rank12.json)")


def _possible(dump: Dump) -> frozenset[int] | None:
    """Ranks that are members of every group and in the place where each call says its caller is; `None` for any."""
    possible: frozenset[int] | None = None
    for group in dump.groups.values():
        if group.ranks:
            members = frozenset(group.ranks)
            possible = members if possible is None else possible & members
    for group_name, place in {(one.group, one.own_place) for one in dump.entries if one.own_place >= 0}:
        of_group = dump.groups[group_name].ranks
        caller = frozenset(of_group[place : place + 1])
        possible = caller if possible is None else possible & caller
    return possible
