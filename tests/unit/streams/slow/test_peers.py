"""Which ranks play the same part, told by communicators and pairs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pacehound.model.topology import Layout
from streams.slow.always.peers import Parts, parts_of


def megatron(layout: Layout, **more: tuple[int, ...]) -> Parts:
    """Every communicator of a layout, the world, and what else is given."""
    members: dict[str | tuple[int, int], tuple[int, ...]] = {"world": tuple(range(layout.world_size)), **more}
    for kind in ("tp", "dp"):
        members |= {f"{kind}{n}": group for n, group in enumerate(layout.groups(kind)) if len(group) > 1}
    for group in layout.groups("pp"):
        members |= {pair: pair for pair in pairwise(group)}
    return parts_of(range(layout.world_size), members)


@pytest.mark.parametrize("layout", [Layout(tp=2, dp=4, pp=4), Layout(dp=8, pp=2), Layout(tp=4, dp=2, pp=2)], ids=str)
def test_ranks_of_a_stage_are_peers_and_stages_never(layout: Layout) -> None:
    parts = megatron(layout)
    stage = layout.tp * layout.dp
    for rank in range(layout.world_size):
        assert parts.of_part(int(parts.part[rank])).tolist() == list(
            range(rank // stage * stage, rank // stage * stage + stage)
        )


def test_communicators_across_stages_make_no_peers() -> None:
    """Tied embeddings of the first and the last stage, and a replica's own communicator."""
    layout = Layout(tp=2, dp=2, pp=4)
    embeddings = {f"e{rank}": (rank, rank + 12) for rank in range(4)}
    replicas = {f"m{d}": tuple(r for r in range(16) if layout.position(r)[1] == d) for d in range(2)}
    parts = megatron(layout, **embeddings, **replicas)
    assert len({int(parts.part[rank]) for rank in (0, 4, 8, 12)}) == 4
    assert all(len({int(parts.part[one]) for one in members}) == 1 for members in parts.communicators)


def test_ranks_in_other_communicators_play_another_part() -> None:
    """Six ranks of which two are in none of the groups that the others train in."""
    parts = parts_of(range(6), {"world": tuple(range(6)), "learners": (0, 1, 2, 3)})
    assert parts.part.tolist() == [0, 0, 0, 0, 1, 1]


def test_without_a_pipeline_the_world_is_one_part() -> None:
    assert len(set(megatron(Layout(tp=2, dp=4)).part.tolist())) == 1
