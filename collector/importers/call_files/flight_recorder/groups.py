"""Which groups of several ranks' dumps are the same one.

A process's own number of a group (`pg_id`) counts the groups that this process is in, so it differs between ranks; a
group's name may be a counter or a hash. What all members have alike is the description and the members, so these two
name a group, and their order those that share both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collector.importers.call_files.flight_recorder.dump import UNDESCRIBED, Counters, Dump, DumpGroup
from collector.importers.call_files.groups import DEFAULT_GROUP, group_id, is_number, ordered, ordinals

_Shared = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupIds:
    """The groups of a job.

    Attributes
    ----------
    communicators
        Ids by a dump's place among the dumps and a group's name in it.
    with_pairs
        Descriptions of groups that some rank has made point-to-point calls on.

    """

    communicators: Mapping[tuple[int, str], str]
    with_pairs: frozenset[str]


def matched(dumps: Sequence[Dump], job: str, attempt: int) -> GroupIds:
    """Match the groups of a job's dumps."""
    matching: dict[_Shared, dict[int, list[str]]] = {}
    for place, dump in enumerate(dumps):
        for group in dump.groups.values():
            matching.setdefault((group.desc, tuple(sorted(group.ranks))), {}).setdefault(place, []).append(group.name)
    communicators = {}
    for (desc, ranks), names in matching.items():
        for place, of_dump in zip(names, ordinals(list(names.values())), strict=True):
            for name, ordinal in of_dump.items():
                communicators[place, name] = group_id(job, attempt, desc, ranks, ordinal)
    return GroupIds(communicators=communicators, with_pairs=_with_pairs(dumps))


def described(dumps: Sequence[tuple[int, Dump]]) -> list[tuple[int, Dump]]:
    """The dumps with members for the groups that torch has not described (gloo's), by rank.

    All ranks are in the default group. In another one are at least those that have called something on it, by its name,
    which `new_group` makes alike on all ranks.
    """
    callers: dict[str, set[int]] = {}
    for rank, dump in dumps:
        for group in dump.groups.values():
            if not group.ranks:
                callers.setdefault(group.name, set()).add(rank)
    everybody = tuple(sorted(rank for rank, _ in dumps))

    def members(group: DumpGroup) -> DumpGroup:
        if group.ranks:
            return group
        return replace(group, ranks=everybody if is_default(group) else tuple(sorted(callers[group.name])))

    return [
        (rank, replace(dump, groups={name: members(group) for name, group in dump.groups.items()}))
        for rank, dump in dumps
    ]


def is_default(group: DumpGroup) -> bool:
    """Whether it is the group of all ranks that `init_process_group` makes."""
    return group.desc == DEFAULT_GROUP or (group.desc in ("", UNDESCRIBED) and group.name == "0")


def world_of(dump: Dump) -> tuple[int, ...]:
    """All ranks of the job, sorted; empty where the dump does not tell."""
    return next((tuple(sorted(group.ranks)) for group in dump.groups.values() if is_default(group)), ())


def counters_by_name(dump: Dump) -> dict[str, Counters]:
    """The counters of the groups, by name.

    They are kept under the process's own numbers, and only an entry says which name a number stands for. Numbers are
    given to groups as they are made and so are names that are numbers: where every name is one, there are as many
    counters as groups, and no entry contradicts, they are paired in order. That is how a rank without any open call
    still says how far it was.
    """
    by_entry = {one.pg_id: one.group for one in dump.entries}
    numbers = sorted(dump.counters)
    names = ordered(dump.groups)
    paired = dict(zip(numbers, names, strict=False))
    is_whole = len(numbers) == len(names) and all(is_number(name) for name in names)
    if not is_whole or any(paired.get(pg_id) != name for pg_id, name in by_entry.items()):
        paired = by_entry
    return {name: dump.counters[pg_id] for pg_id, name in paired.items() if pg_id in dump.counters}


def _with_pairs(dumps: Sequence[Dump]) -> frozenset[str]:
    return frozenset(
        dump.groups[one.group].desc for dump in dumps for one in dump.entries if one.is_p2p or one.p2p_seq > 0
    )
