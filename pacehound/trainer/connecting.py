"""How a script's process finds its agent: by what `pacehound run` has put into its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pacehound.trainer import own
from pacehound.trainer.control import Control
from pacehound.trainer.order import KIND, Agree, Can

AGREE_EVERY = 10
"""Steps: an all-reduce of two numbers costs less than a thousandth of ten steps, and an order waits for ten at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank this is, and of which run.

    Attributes
    ----------
    run_dir
        The run folder; empty: nobody listens.

    """

    run_dir: str
    rank: int
    world_size: int
    attempt: int


def place_of(environ: Mapping[str, str], rank: int | None = None, world_size: int | None = None) -> Place:
    """What the launcher, and torchrun or whoever else starts ranks, have said.

    >>> place_of({"PACEHOUND_RUN_DIR": "/r", "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"})
    Place(run_dir='/r', rank=1, world_size=2, attempt=1)
    """
    return Place(
        run_dir=environ.get("PACEHOUND_RUN_DIR", ""),
        rank=_integer(environ, "RANK", -1) if rank is None else int(rank),
        world_size=_integer(environ, "WORLD_SIZE", -1) if world_size is None else int(world_size),
        # As the recorder counts: the run's own, and torchrun's restarts within it.
        attempt=_integer(environ, "PACEHOUND_ATTEMPT", 0) + _integer(environ, "TORCHELASTIC_RESTART_COUNT", 0),
    )


def connect(
    *kinds: str,
    can: Can | None = None,
    agree: Agree | None = None,
    agree_every: int = AGREE_EVERY,
    micro_batches: int = 0,
    layout: tuple[int, int] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> Control:
    """Begin to take orders; call it once in the process of each rank, with the same arguments on all.

    Parameters
    ----------
    kinds
        The orders that the script can carry out, by names of its own: `microbatches`, `collect` ….
    can
        Asked before all ranks have said that they can: `True`, or why not.
    agree
        Closes the last gap between hosts: gives the smallest of each number over all ranks. Every rank calls it at the
        same steps, whether anybody listens or not; what it raises is the script's own error, as of any all-reduce.
    agree_every
        So many steps lie between two such calls.
    micro_batches
        How many this rank computes in each step as long as no order says otherwise. With it the script promises that
        it takes orders `microbatches` of a number per rank, that each rank is a replica of its own, and that gradients
        are weighted: then Pacehound may move micro-batches by itself (docs/mitigation.md).
    layout
        Replicas and stages of a pipeline in which ranks may change places: orders `topology` list by place which rank
        takes it, and place `p` is replica `p % replicas` of stage `p // replicas`. With it the script promises that
        each rank takes its new place with the parameters of that place, and trains on as before: then Pacehound may
        move ranks by itself.
    rank, world_size
        Where the environment (RANK, WORLD_SIZE) does not say.

    Raises
    ------
    ValueError
        A kind that cannot be one, an interval of less than a step, micro-batches of a script that takes no orders for
        them. Nothing else is raised, here or later.

    Examples
    --------
    >>> connect("collect").at_step(0) is None
    True

    """
    for kind in kinds:
        if not isinstance(kind, str) or KIND.fullmatch(kind) is None:
            raise ValueError(f"{kind!r} is no kind of orders: a small letter, then letters, digits, '_', '.' and '-'")
    if agree_every < 1:
        raise ValueError(f"agree_every is {agree_every}; at least 1 step")
    if micro_batches and (micro_batches < 0 or "microbatches" not in kinds):
        raise ValueError(f"micro_batches is {micro_batches}; at least 1, of a script that takes orders 'microbatches'")
    if layout is not None and (len(layout) != 2 or min(layout) < 1 or "topology" not in kinds):
        raise ValueError(f"layout is {layout}; replicas and stages, of a script that takes orders 'topology'")
    replicas, stages = layout or (0, 0)
    try:
        place = place_of(os.environ, rank, world_size)
    except Exception:  # a rank that is no number: nobody listens to it
        place = Place("", -1, -1, 0)
    own.leave()
    return Control(
        place.run_dir,
        kinds,
        can=can,
        agree=agree,
        agree_every=agree_every,
        hello={
            "rank": place.rank,
            "world_size": place.world_size,
            "attempt": place.attempt,
            "micro_batches": micro_batches,
            "replicas": replicas,
            "stages": stages,
        },
    )


def connected(environ: Mapping[str, str]) -> Control:
    """For a script that does not connect by itself (`pacehound.trainer.own`): it takes what needs nothing of it."""
    place = place_of(environ)
    hello = {"rank": place.rank, "world_size": place.world_size, "attempt": place.attempt}
    return Control(place.run_dir, hello=hello)


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        return default
