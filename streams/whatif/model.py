"""What waits for what: the dependency model of section 3.2, for one step of one DP rank; all others share it.

Each worker runs streams: one of computation, one of DP communication, and one for each kind of send and receive.

- Operations of one stream follow each other in the order in which they were launched.
- A forward-compute waits for its receive, a send for its compute; a receive is posted when the compute of the same
  direction before it has ended.
- The first forward of a model chunk waits for the gather of its parameters, and the scattering of its gradients for
  the chunk's last backward where the two overlap; where they do not, it follows the last backward of all.
- At the end of a step: garbage collection, gradients of layer norms, of embeddings, of the rest, clipping, optimizer.
- A transfer begins when all of its peers have launched: sender and receiver of a micro-batch; the first and the last
  stage for the embeddings; all stages for the clipping; and over the DP ranks parameters, gradients and the clipping.

With model chunks (virtual stages) the neighbour of the last stage is the first one. Sends of the model's last chunk
and receives of its first have no peer; profilers record some of them all the same, and they wait for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput
from streams.whatif import optypes
from streams.whatif.layout import Ops
from streams.whatif.thresholds import CLOSE_S

FloatArray = npt.NDArray[np.floating[Any]]


_COMPUTE_OF = {
    optypes.FORWARD_SEND: optypes.FORWARD_COMPUTE,
    optypes.FORWARD_RECV: optypes.FORWARD_COMPUTE,
    optypes.BACKWARD_SEND: optypes.BACKWARD_COMPUTE,
    optypes.BACKWARD_RECV: optypes.BACKWARD_COMPUTE,
}
_SENDS = (optypes.FORWARD_SEND, optypes.BACKWARD_SEND)
_RECEIVE_OF = {optypes.FORWARD_SEND: optypes.FORWARD_RECV, optypes.BACKWARD_SEND: optypes.BACKWARD_RECV}
_TOWARDS = {optypes.FORWARD_SEND: 1, optypes.FORWARD_RECV: -1, optypes.BACKWARD_SEND: -1, optypes.BACKWARD_RECV: 1}
"""Where the peer of an operation lies, in stages and in model chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The dependencies of one step."""

    # for each operation the operations that must have ended before it is launched
    waits_for: tuple[tuple[int, ...], ...]
    # operations that begin their transfer together, on one DP rank; every communication stands in one
    groups: tuple[tuple[int, ...], ...]
    over_dp: tuple[bool, ...]  # for each group whether the DP ranks begin together, too


@dataclass(slots=True)
class _Builder:
    """Plain lists: looking up single numbers is what this does."""

    n_stages: int
    optype: list[int]
    seq_id: list[int]
    mc: list[int]
    gmc: list[int]
    starts_s: list[float]
    ends_s: list[float]
    waits_for: list[list[int]]
    groups: list[tuple[int, ...]] = field(default_factory=list)
    over_dp: list[bool] = field(default_factory=list)
    at: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def of(self, stage: int, *kinds: int) -> list[int]:
        """Operations of a stage in the order of their launch."""
        found = [op for kind in kinds for op in self.at.get((stage, kind), ())]
        return sorted(found, key=lambda op: (self.starts_s[op], self.seq_id[op], optypes.NAMES[self.optype[op]]))

    def after(self, op: int, before: Iterable[int]) -> None:
        self.waits_for[op].extend(before)

    def chain(self, ops: Iterable[int], before: Sequence[int] = ()) -> None:
        for op in ops:
            self.after(op, before)
            before = (op,)

    def group(self, ops: Iterable[int], *, over_dp: bool) -> None:
        if members := tuple(ops):
            self.groups.append(members)
            self.over_dp.append(over_dp)


def dependency_model(ops: Ops, starts_s: FloatArray, durations_s: FloatArray, name: str) -> Model:
    """The model of a job whose operations were launched and took as given.

    Starts and durations are of one step of one DP rank, shape `(n_ops,)`: the order of launches is taken from them.
    `name` is what the trace is called in messages.

    Raises
    ------
    InvalidInput
        Sends and receives do not match.
    """
    at: dict[tuple[int, int], list[int]] = {}
    for op, key in enumerate(zip(ops.stage.tolist(), ops.optype.tolist(), strict=True)):
        at.setdefault(key, []).append(op)
    builder = _Builder(
        n_stages=ops.n_stages,
        optype=ops.optype.tolist(),
        seq_id=ops.seq_id.tolist(),
        mc=ops.mc.tolist(),
        gmc=ops.gmc.tolist(),
        starts_s=starts_s.tolist(),
        # In the file's precision, as the published analysis has them: which operation ended last may hang on it.
        ends_s=(starts_s + durations_s).tolist(),
        waits_for=[[] for _ in range(len(ops))],
        at=at,
    )
    n_chunks = max(int(ops.gmc.max()) + 1, ops.n_stages)
    matched = {}
    for stage in range(ops.n_stages):
        builder.chain(builder.of(stage, *optypes.COMPUTE))
        for kind in optypes.P2P:
            builder.chain(builder.of(stage, kind))
            matched[stage, kind] = _with_compute(builder, stage, kind, n_chunks, name)
        _first_backward(builder, stage)
        builder.chain(builder.of(stage, optypes.PARAMS_GATHER, optypes.GRADS_SCATTER))
        _params(builder, stage)
        _end_of_step(builder, stage)
    _pairs(builder, matched, name)
    _collectives(builder)
    return Model(
        waits_for=tuple(tuple(dict.fromkeys(one)) for one in builder.waits_for),
        groups=tuple(builder.groups),
        over_dp=tuple(builder.over_dp),
    )


def _has_peer(kind: int, gmc: int, n_chunks: int) -> bool:
    return 0 <= gmc + _TOWARDS[kind] < n_chunks


def _with_compute(builder: _Builder, stage: int, kind: int, n_chunks: int, name: str) -> list[int]:
    """Join the sends or receives of a stage to its computes; those that have a peer come back, in order."""
    computes = builder.of(stage, _COMPUTE_OF[kind])
    if not computes:
        return []
    is_send = kind in _SENDS
    by_number = sorted(computes, key=lambda op: builder.seq_id[op])
    if is_send:
        bound_s = min(builder.ends_s[op] for op in computes) - CLOSE_S
        comms = [op for op in builder.of(stage, kind) if builder.ends_s[op] >= bound_s]
    else:
        bound_s = max(builder.starts_s[op] for op in computes) + CLOSE_S
        comms = [op for op in builder.of(stage, kind) if builder.starts_s[op] <= bound_s]
    real = [op for op in by_number if _has_peer(kind, builder.gmc[op], n_chunks)]
    if len(comms) == len(by_number):
        joined = by_number
    elif len(comms) + 1 == len(by_number):  # the first receive of the model's first chunk is not recorded by some
        joined = by_number[:-1] if is_send else by_number[1:]
    elif len(comms) in (0, len(real)):
        joined = real[: len(comms)]
    else:
        raise InvalidInput(
            f"{name}: stage {stage} has {len(comms)} {optypes.NAMES[kind]} for {len(by_number)} "
            f"{optypes.NAMES[_COMPUTE_OF[kind]]}, of which {len(real)} have a peer; some are missing in every step"
        )
    with_peer: list[int] = []
    for comm, compute in zip(comms, joined, strict=True):
        if is_send:
            builder.after(comm, (compute,))
        else:
            builder.after(compute, (comm,))
            earlier = by_number.index(compute) - 1
            if earlier >= 0:
                builder.after(comm, (by_number[earlier],))
        if _has_peer(kind, builder.gmc[compute], n_chunks):
            with_peer.append(comm)
    for comm in builder.of(stage, kind):
        if comm not in with_peer:
            builder.group((comm,), over_dp=False)
    return with_peer


def _first_backward(builder: _Builder, stage: int) -> None:
    """The first backward send and receive are posted together with the last forward before the first backward."""
    computes = builder.of(stage, *optypes.COMPUTE)
    is_backward = [builder.optype[op] == optypes.BACKWARD_COMPUTE for op in computes]
    first = is_backward.index(True) if True in is_backward else 0
    if first < 2:
        return
    for kind in (optypes.BACKWARD_RECV, optypes.BACKWARD_SEND):
        for op in builder.at.get((stage, kind), ()):
            if builder.seq_id[op] == 0:
                builder.after(op, (computes[first - 2],))


def _params(builder: _Builder, stage: int) -> None:
    """The first forward of a chunk waits for its parameters: the last gather that names the chunk."""
    gather_of = {builder.mc[op]: op for op in builder.at.get((stage, optypes.PARAMS_GATHER), ())}
    for mc, gather in gather_of.items():
        forwards = [op for op in builder.of(stage, optypes.FORWARD_COMPUTE) if builder.mc[op] == mc]
        if forwards:
            builder.after(forwards[0], (gather,))


def _end_of_step(builder: _Builder, stage: int) -> None:
    at = builder.at
    computes = builder.of(stage, *optypes.COMPUTE)
    last = max(computes, key=lambda op: builder.ends_s[op])
    collection = at.get((stage, optypes.GC), [])
    for op in collection:
        builder.after(op, (last,))
    scatters = at.get((stage, optypes.GRADS_SCATTER), [])
    before = [collection[0] if collection else last]
    first_and_last = (0, builder.n_stages - 1)
    kinds = [optypes.LAYERNORM_GRADS] + ([optypes.EMBEDDING_GRADS] if stage in first_and_last else [])
    if _overlaps(builder):
        tail = at.get((stage, optypes.SEPARATE_GRADS), [])[:1]
        before = [*scatters[-1:], *before]
        scatter_of: dict[int, int] = {}
        for op in scatters:
            scatter_of.setdefault(builder.mc[op], op)
        for mc, scatter in scatter_of.items():
            backwards = [op for op in builder.of(stage, optypes.BACKWARD_COMPUTE) if builder.mc[op] == mc]
            if backwards:
                builder.after(scatter, (max(backwards, key=lambda op: builder.ends_s[op]),))
    else:
        tail = scatters
    heads = [op for kind in kinds for op in at.get((stage, kind), [])[:1]]
    ends = [op for kind in (optypes.CLIP_GRADS, optypes.OPTIMIZER) for op in at.get((stage, kind), [])[:1]]
    builder.chain([*heads, *tail, *ends], before)


def _overlaps(builder: _Builder) -> bool:
    """Whether gradients are scattered beside the backward passes."""
    return any(kind == optypes.SEPARATE_GRADS for _, kind in builder.at)


def _pairs(builder: _Builder, matched: dict[tuple[int, int], list[int]], name: str) -> None:
    """Senders and receivers, in the order in which each side does it."""
    n_stages = builder.n_stages
    for stage in range(n_stages):
        for send, receive in _RECEIVE_OF.items():
            peer = (stage + _TOWARDS[send]) % n_stages
            sent, received = matched[stage, send], matched[peer, receive]
            if len(sent) != len(received):
                raise InvalidInput(
                    f"{name}: stage {stage} has {len(sent)} {optypes.NAMES[send]} and its peer, stage {peer}, "
                    f"{len(received)} {optypes.NAMES[receive]}; operations are missing in every step"
                )
            for pair in zip(sent, received, strict=True):
                builder.group(pair, over_dp=False)


def _collectives(builder: _Builder) -> None:
    at, n_stages = builder.at, builder.n_stages
    for stage in range(n_stages):
        for kind in (optypes.PARAMS_GATHER, optypes.GRADS_SCATTER, optypes.SEPARATE_GRADS):
            for op in at.get((stage, kind), ()):
                builder.group((op,), over_dp=True)
    embeddings = [op for stage in sorted({0, n_stages - 1}) for op in at.get((stage, optypes.EMBEDDING_GRADS), [])[:1]]
    builder.group(embeddings, over_dp=False)
    clippings = [op for stage in range(n_stages) for op in at.get((stage, optypes.CLIP_GRADS), [])[:1]]
    builder.group(clippings, over_dp=True)
