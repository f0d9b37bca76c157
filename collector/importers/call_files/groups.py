"""How torch's process groups are told apart by what all of their members have alike.

Frameworks make several groups of the same description and members (a second one for the optimizer, say). All members
make them in the same order, and their names tell that order: as numbers where they are numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pacehound.model.identity import communicator_id

DEFAULT_GROUP = "default_pg"
"""How torch describes the group of all ranks."""


def group_id(job: str, attempt: int, desc: str, ranks: Sequence[int], ordinal: int) -> str:
    """The communicator id of the group that is the `ordinal`-th, from 0, of this description and these ranks."""
    return communicator_id(job, attempt, desc if ordinal == 0 else f"{desc} #{ordinal + 1}", ranks, 0)


def ordinals(names_by_file: Sequence[Collection[str]]) -> list[dict[str, int]]:
    """Which of several groups that are alike each name stands for, file by file.

    A file lists a group once its rank has used it, so a later group may be there without an earlier one: where some
    file has every name, its order is that of all. Where none has, names differ between ranks, and each file's own
    order is all there is.

    >>> ordinals([["9", "10"], ["10"]]), ordinals([["4"], ["9"]])
    ([{'9': 0, '10': 1}, {'10': 1}], [{'4': 0}, {'9': 0}])
    """
    every = {name for names in names_by_file for name in names}
    has_all = any(len(set(names)) == len(every) for names in names_by_file)
    known = {name: ordinal for ordinal, name in enumerate(ordered(every))}
    return [
        {name: known[name] for name in ordered(names)}
        if has_all
        else {name: ordinal for ordinal, name in enumerate(ordered(names))}
        for names in names_by_file
    ]


def ordered(names: Iterable[str]) -> list[str]:
    """Names in the order in which their groups were made, as far as they tell.

    >>> ordered(["10", "9", "b7"])
    ['9', '10', 'b7']
    """
    return sorted(names, key=lambda name: (0, int(name), "") if is_number(name) else (1, 0, name))


def is_number(name: str) -> bool:
    """Whether a name is a counter."""
    return name.isascii() and name.isdigit() and len(name) <= 18
