"""`pacehound recover`: nodes are lost; which plan does most until the next one is?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import json_option, print_json
from pacehound.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from actuators.recovery.policy import FailureHistory
    from actuators.recovery.profile import ClusterProfile, ModelProfile
    from actuators.recovery.state import State

_HOUR_S = 3600.0
_ABOVE_0 = click.FloatRange(min=0.0, min_open=True)


@click.command()
@click.option("--nodes", "n_nodes", type=click.IntRange(1, 4096), required=True, help="Nodes before the failure.")
@click.option(
    "--failed", metavar="NODES", required=True, help="Those that are lost, as in 3,17 or 8-15; numbered from 0."
)
@click.option("--joined", metavar="NODES", default="", help="New ones, with numbers that no other has.")
@click.option(
    "--model",
    metavar="MODEL",
    required=True,
    help="A name (llama2-7b, llama3-70b, gpt3-175b, …), or numbers of one layer: "
    "layers=32,forward_ms=8,parameter_mb=400 and, where known, backward_ms, optimizer_mb, gradient_mb, activation_mb, "
    "boundary_mb, head_layers, embedding_layers.",
)
@click.option("--dp", type=click.IntRange(1), help="Pipelines before.  [default: nodes / stages, or the fastest]")
@click.option("--pp", type=click.IntRange(1), help="Stages before.  [default: nodes / pipelines, or the fastest]")
@click.option(
    "--batch", type=click.IntRange(1), help="Micro-batches of a step, over all pipelines.  [default: 4 a node]"
)
@click.option("--micro-batch", type=click.IntRange(1), default=1, show_default=True, help="Samples of a micro-batch.")
@click.option("--sequence", type=click.IntRange(1), help="Tokens of a sample.  [default: the model's]")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="Devices of a node, failing together.")
@click.option("--device", default="h100", show_default=True, help="a100-40, a100-80, h100, h200 or 910b.")
@click.option("--memory-gib", type=_ABOVE_0, help="Of a device.  [default: the device's]")
@click.option("--bandwidth", type=_ABOVE_0, default=50.0, show_default=True, help="GB/s between nodes, of each device.")
@click.option("--restart", type=click.FloatRange(0.0), help="Seconds to start with a new plan.  [default: 2]")
@click.option("--checkpoint-age", type=click.FloatRange(0.0), help="Minutes since the last one; none without it.")
@click.option(
    "--checkpoint-bandwidth", type=_ABOVE_0, default=1.0, show_default=True, help="GB/s at which a node reads it."
)
@click.option("--past-failures", type=click.IntRange(0), help="Nodes that have failed, those of --failed among them.")
@click.option("--watched-hours", type=_ABOVE_0, help="Hours in which they did, over all nodes.")
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), help="Take past failures from this store's incidents."
)
@json_option
def recover(
    n_nodes: int,
    failed: str,
    joined: str,
    model: str,
    dp: int | None,
    pp: int | None,
    batch: int | None,
    micro_batch: int,
    sequence: int | None,
    tp: int,
    device: str,
    memory_gib: float | None,
    bandwidth: float,
    restart: float | None,
    checkpoint_age: float | None,
    checkpoint_bandwidth: float,
    past_failures: int | None,
    watched_hours: float | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Compare what a job can do after it has lost nodes: go on with the peers, or a new plan; and say which is best.

    A plan is worth its throughput times the share of the time until the next failure that is left after changing to
    it. A node is what fails together: one device, or the TP devices of a tensor-parallel group. Nodes are numbered as
    Megatron numbers ranks: data-parallel first, then stages.

    Example: pacehound recover --nodes 16 --failed 3 --model llama2-7b --dp 4 --pp 4
    """
    from actuators.recovery.answer import choice_answer
    from actuators.recovery.described import described
    from actuators.recovery.estimator import estimate
    from actuators.recovery.models import DEVICES
    from actuators.recovery.policy import choose
    from actuators.recovery.profile import ClusterProfile
    from actuators.recovery.thresholds import REROUTE_S, RESTART_S
    from pacehound.pages.recovery import print_recovery
    from pacehound.pages.terminal import terminal

    if device not in DEVICES:
        raise InvalidInput(f"--device {device!r} is not known; there are {', '.join(DEVICES)}")
    profile = described(model, flops=DEVICES[device].flops * tp, sequence=sequence, micro_batch=micro_batch)
    memory_bytes = DEVICES[device].memory_bytes if memory_gib is None else memory_gib * 2**30
    cluster = ClusterProfile(
        memory_bytes=memory_bytes * tp,
        bandwidth_bytes_per_s=bandwidth * 1e9 * tp,
        restart_s=RESTART_S if restart is None else restart,
        reroute_s=REROUTE_S,
        checkpoint_bytes_per_s=0.0 if checkpoint_age is None else checkpoint_bandwidth * 1e9,
        checkpoint_age_s=60.0 * (checkpoint_age or 0.0),
    )
    lost = _numbers("--failed", failed)
    if store is None:
        history, said = _history(len(lost), n_nodes, tp, past_failures, watched_hours)
    elif past_failures is None and watched_hours is None:
        history, said = _stored_history(store, len(lost), tp)
    else:
        raise InvalidInput("--store counts past failures itself; leave --past-failures and --watched-hours out")
    before = _before(n_nodes, dp, pp, batch or 4 * n_nodes, profile, cluster)
    state = before.without(lost).joined(_numbers("--joined", joined) if joined else [])
    try:
        choice = choose(state, profile, cluster, history)
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is missing: pip install 'pacehound[recovery]'") from error
    answer = choice_answer(before, estimate(before, profile, cluster), choice, said)
    if as_json:
        print_json(answer)
    else:
        print_recovery(terminal(sys.stdout), answer)


def _numbers(option: str, text: str) -> list[int]:
    """The numbers of nodes as people write them.

    >>> _numbers("--failed", "3,8-10")
    [3, 8, 9, 10]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 12:
            raise InvalidInput(f"{option} has {part.strip()!r}; write numbers of nodes, as in 3,17 or 8-15")
        start, end = int(first), int(last or first)
        if end < start or end - start > 65_536:
            raise InvalidInput(f"{option} has {part.strip()!r}; the second number is the larger one, within 65,536")
        found += range(start, end + 1)
    twice = sorted({number for number in found if found.count(number) > 1}) if len(found) != len(set(found)) else []
    if twice:
        raise InvalidInput(f"{option} names node {twice[0]} twice")
    return found


def _history(n_lost: int, n_nodes: int, tp: int, past: int | None, hours: float | None) -> tuple[FailureHistory, str]:
    """What was seen of failures, and how to say it."""
    from actuators.recovery.policy import FailureHistory
    from actuators.recovery.thresholds import ASSUMED_DEVICE_HOURS, ASSUMED_FAILURES

    if hours is None:
        if past is not None:
            raise InvalidInput(f"--past-failures {past} needs --watched-hours: in how long?")
        node_s = ASSUMED_DEVICE_HOURS * _HOUR_S / tp
        said = "no history was given (--past-failures, --watched-hours): the rate of Llama 3's training is assumed"
        return FailureHistory(n_failures=ASSUMED_FAILURES, node_s=node_s), said
    n_failures = n_lost if past is None else past
    if n_failures < n_lost:
        raise InvalidInput(f"--past-failures {n_failures} is less than the {n_lost} nodes of --failed")
    said = f"{n_failures} in {hours:g} h of {n_nodes} nodes"
    return FailureHistory(n_failures=n_failures, node_s=hours * _HOUR_S * n_nodes), said


def _stored_history(store: Path, n_lost: int, tp: int) -> tuple[FailureHistory, str]:
    """What a store has seen of failures, those of `--failed` besides."""
    from actuators.recovering import PastFailures
    from pacehound.cli.history import history

    with history(store) as answers:
        (row,) = answers.ask("recovery/failures", {"incident": ""}).to_pylist()
    return PastFailures(**row).history(n_lost, tp)


def _before(
    n_nodes: int, dp: int | None, pp: int | None, batch: int, model: ModelProfile, cluster: ClusterProfile
) -> State:
    """The job as it was: symmetric, its nodes numbered as Megatron does it."""
    from actuators.recovery.estimator import estimate
    from actuators.recovery.layers import split_layers
    from actuators.recovery.state import megatron_state

    for name, one in (("--dp", dp), ("--pp", pp)):
        if one is not None and n_nodes % one:
            raise InvalidInput(f"{name} {one} does not divide {n_nodes} nodes")
    if dp is not None and pp is not None and dp * pp != n_nodes:
        raise InvalidInput(f"--dp {dp} x --pp {pp} are {dp * pp} nodes, not {n_nodes}")
    given = pp or (n_nodes // dp if dp else None)
    lengths = [given] if given else [one for one in range(1, n_nodes + 1) if n_nodes % one == 0]
    found = []
    for n_stages in lengths:
        stages = split_layers(model, n_stages, cluster.memory_bytes)
        if stages is not None and n_nodes // n_stages <= batch:
            state = megatron_state(dp=n_nodes // n_stages, stages=stages, n_micro_batches=batch)
            found.append((estimate(state, model, cluster).throughput, state))
    if not found:
        shape = f"{n_nodes // given} x {given} stages" if given else f"{n_nodes} nodes"
        raise InvalidInput(
            f"{model.name} on {shape} with {batch} micro-batches cannot be: each pipeline needs one, no stage is empty "
            f"and each fits into {cluster.memory_bytes / 2**30:.0f} GiB (--memory-gib, --tp, --sequence)"
        )
    return max(found, key=lambda pair: pair[0])[1]
