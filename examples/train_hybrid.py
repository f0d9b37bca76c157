"""A pipeline- and data-parallel job over gloo that loses a node by kill -9 in mid-step and trains on without it.

Its nodes may change places, too (Falcon 5.3, S3), by orders `topology` of `pacehound.trainer`: docs/mitigation.md.

python examples/train_hybrid.py --dp 4 --pp 2 --steps 12 --die 3:5:4

Node 3 kills itself in step 5 before its fourth operation. The others make their process groups anew for the plan that
`actuators.recovery` chooses: new pipelines, for which they fetch the layers that they lack from live replicas (weights
and both Adam moments), or rerouting, where the lost one's micro-batches pass through its peers. They go on with the
same step. Under `pacehound run` they ask first which plan to go on with (`Control.recovery`), and where all of them are
ordered one they use that. `--pace-ms` is what a layer takes: a sleep stands in for a device, so that a machine of two
cores can run eight of them, and the estimate of a step can be held against what it took.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from actuators.recovery.estimator import estimate, hop_s, rerouted
from actuators.recovery.layers import split_layers
from actuators.recovery.memory import stage_bytes, under_way
from actuators.recovery.policy import FailureHistory, choose
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.rerouting import routes_of
from actuators.recovery.restorer import Move, Restoration, exchanges, restore
from actuators.recovery.state import Plan, State, megatron_state

WORKER = Path(__file__).with_name("hybrid_worker.py")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dp", type=int, default=4, help="pipelines")
    parser.add_argument("--pp", type=int, default=2, help="stages of each")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--most-layers", type=int, default=6, help="that a node has the memory for")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16, help="micro-batches of a step, over all pipelines")
    parser.add_argument("--micro-batch", type=int, default=2, help="samples of a micro-batch")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--pace-ms", type=float, default=4.0, help="that the forward pass of a layer sleeps; backward twice"
    )
    parser.add_argument(
        "--die", action="append", default=[], metavar="NODE:STEP:OPERATION", help="kill -9 there; may be repeated"
    )
    parser.add_argument(
        "--join",
        action="append",
        type=int,
        default=[],
        metavar="STEP",
        help="a node comes, or returns, after that step",
    )
    parser.add_argument(
        "--until-next-s", type=float, default=3600.0, help="until the next failure, as far as anybody expects"
    )
    parser.add_argument("--address", default="127.0.0.1", help="where the nodes find each other, through this process")
    parser.add_argument(
        "--launch", default="", metavar="WORDS", help="before the command of each node, with {node}: `ssh h{node}`"
    )
    parser.add_argument("--csv", type=Path, default=None, help="node 0 writes each step: its time, and who is where")
    parser.add_argument("--stop", type=Path, default=None, help="all nodes leave after the same step once it exists")
    parser.add_argument(
        "--ask-s", type=float, default=2.0, help="survivors wait so long for a plan that is ordered (pacehound.trainer)"
    )
    parser.add_argument("--json", action="store_true", help="one object on stdout instead of lines")
    return parser.parse_args()


class Job:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.store = dist.TCPStore(
            options.address, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
        )
        weights = 4 * (4 * options.width**2 + 5 * options.width)
        pace_s = options.pace_ms / 1e3
        self.model = ModelProfile(
            name="blocks",
            n_layers=options.layers,
            forward_s=max(pace_s, 1e-4),
            backward_s=max(2 * pace_s, 2e-4),
            parameter_bytes=weights,
            optimizer_bytes=2 * weights,
            gradient_bytes=weights,
            activation_bytes=0.0,  # next to nothing here; counted where memory is held against its estimate
            boundary_bytes=4 * options.micro_batch * options.width,
            samples_per_micro_batch=options.micro_batch,
        )
        self.cluster = ClusterProfile(
            memory_bytes=1.01 * options.most_layers * self.model.static_bytes,
            bandwidth_bytes_per_s=1e9,
            latency_s=2e-4,
            restart_s=1.0,
            reroute_s=0.5,
        )
        stages = split_layers(self.model, options.pp, self.cluster.memory_bytes)
        if stages is None:
            raise SystemExit(f"{options.layers} layers do not fill {options.pp} stages")
        self.state = megatron_state(dp=options.dp, stages=stages, n_micro_batches=options.batch)
        self.generation, self.states, self.recoveries = -1, [self.state], list[dict[str, Any]]()
        deaths = {int(node): (step, operation) for node, step, operation in (one.split(":") for one in options.die)}
        joins = dict(enumerate(options.join, start=len(self.state.survivors)))
        self.coming = set(joins)
        self.processes = {
            node: subprocess.Popen([
                *options.launch.format(node=node).split(),
                sys.executable, str(WORKER), f"--port={self.store.port}", f"--node={node}", f"--width={options.width}",
                f"--address={options.address}", f"--dp={options.dp}", f"--pp={options.pp}",
                f"--csv={options.csv or ''}", f"--stop={options.stop or ''}",
                f"--micro-batch={options.micro_batch}", f"--steps={options.steps}", f"--pace-s={pace_s}",
                f"--ask-s={options.ask_s}",
                f"--join-step={joins.get(node, -1)}", f"--die-step={deaths.get(node, (-1, 0))[0]}",
                f"--die-operation={deaths.get(node, (0, 0))[1]}",
            ])
            for node in (*self.state.survivors, *joins)
        }  # fmt: skip

    def order(self, moves: tuple[Move, ...], applied: int) -> None:
        """Tell the nodes of the present state what they are."""
        state = self.state
        found = [
            {"span": one.span, "round": one.round, "nodes": sorted(state.holders[p][s] or 0 for p, s in one.members)}
            for one in exchanges(state)
        ]
        routes, orders = routes_of(state), {}
        assert routes is not None
        if state.lost:
            found_orders = rerouted(
                state, self.model, hop_s(self.model, self.cluster), self.cluster.memory_bytes
            ).orders
            orders = {state.holders[p][s]: one for (p, s), one in found_orders.items()}
        order = {
            "nodes": state.survivors,
            "holders": state.holders,
            "stages": state.plan.stages,
            "batches": state.plan.batches,
            "routes": [[state.holders[p][s] for p, s in one.places] for one in routes],
            "orders": orders,
            "n_micro_batches": state.plan.n_micro_batches,
            "exchanges": found,
            "moves": [{"layer": one.layer, "source": one.source, "target": one.target} for one in moves],
            "applied": applied,
        }
        self.store.set(f"order/{self.generation}", json.dumps(order))

    def ask(self, gone: list[int]) -> None:
        """What the nodes are to ask: what is left of the job and its costs (docs/trainer.md)."""
        state, model, cluster = self.state, self.model, self.cluster
        layer = ("forward_s", "backward_s", "parameter_bytes", "optimizer_bytes", "gradient_bytes", "boundary_bytes")
        given = ("memory_bytes", "bandwidth_bytes_per_s", "latency_s", "restart_s", "reroute_s")
        about = {
            "stages": state.plan.stages,
            "batches": state.plan.batches,
            "holders": state.holders,
            "idle": state.idle,
            "lost": gone,
            "layer": {name: getattr(model, name) for name in (*layer, "samples_per_micro_batch")},
            "cluster": {name: getattr(cluster, name) for name in given},
        }
        question = {"survivors": state.survivors, "about": about}
        self.store.set(f"question/{self.generation + 1}", json.dumps(question))

    def ordered(self, reports: list[dict[str, Any]]) -> Plan | None:
        """The plan that all nodes were ordered to go on with; nothing where one was not."""
        answers = [one.get("answer") or {} for one in reports]
        tickets = {one["ticket"] if one.get("is_ordered") else 0 for one in answers}
        if len(tickets) > 1 or tickets == {0}:
            return None
        plan = answers[0]["plan"]
        return Plan(kind=plan["kind"], stages=tuple(map(tuple, plan["stages"])), batches=tuple(plan["batches"]))

    def reports(self, nodes: tuple[int, ...]) -> list[dict[str, Any]] | None:
        """What all of them say; nothing where another one is lost before it has."""
        self.generation += 1
        self.store.set("generation", str(self.generation))
        keys = [f"report/{self.generation}/{node}" for node in nodes]
        while not self.store.check(keys):
            if any(self.processes[node].poll() is not None for node in nodes):
                return None
            time.sleep(0.01)
        return [json.loads(self.store.get(key)) for key in keys]

    def lost(self) -> list[int]:
        return [node for node in self.state.survivors if self.processes[node].poll() not in (None, 0)]

    def come(self) -> list[int]:
        return [node for node in sorted(self.coming) if self.store.check([f"here/{node}"])]

    def recover(self, joined: list[int]) -> None:
        """Choose among rerouting and the new plans, and say it."""
        begun_s, gone, reports = time.time(), list[int](), None
        self.coming -= set(joined)
        self.state = self.state.joined(joined)
        while reports is None:
            dead = self.lost()
            gone += dead
            self.state = self.state.without(dead)
            if gone:
                self.ask(gone)
            reports = self.reports(self.state.survivors)
            if reports is None and not self.lost():
                raise SystemExit("a node went away without having failed")
        plan = self.ordered(reports)
        restoration = self.restoration(plan) if plan is not None else self.best()
        if restoration is None:
            raise SystemExit("no live replica of some layer is left: start again from a checkpoint")
        self.state = restoration.state
        self.states.append(self.state)
        moves, moved_bytes = restoration.moves, restoration.moved_bytes
        self.recoveries.append({
            "lost": gone,
            "joined": joined,
            "applied": max(one["applied"] for one in reports),
            "rolled_forward": sum(one["applied"] < max(r["applied"] for r in reports) for one in reports),
            "moved_bytes": moved_bytes,
            "is_ordered": plan is not None,
            "recommended": (reports[0].get("answer") or {}).get("why", ""),
            "at_s": begun_s,
            "generation": self.generation,
        })  # fmt: skip
        self.order(moves, max(one["applied"] for one in reports))

    def restoration(self, plan: Plan) -> Restoration:
        """Who takes which place of a plan, and what moves for it; in rerouting nothing does."""
        if plan.kind != "reroute":
            return restore(self.state, plan, self.model)
        state = replace(self.state, plan=replace(self.state.plan, kind="reroute"))
        return Restoration(state=state, moves=(), moved_bytes=0.0, busiest_bytes=0.0, read_bytes=0.0)

    def best(self) -> Restoration | None:
        """What the policy chooses where nobody has ordered anything."""
        history = FailureHistory(n_failures=1, node_s=1.5 * self.options.until_next_s * len(self.state.survivors))
        options = choose(self.state, self.model, self.cluster, history).options
        best = next((one for one in options if not (one.restoration and one.restoration.read_bytes)), None)
        if best is None:
            return None
        return best.restoration or Restoration(
            state=best.state, moves=(), moved_bytes=0.0, busiest_bytes=0.0, read_bytes=0.0
        )

    def run(self) -> dict[str, Any]:
        if self.reports(self.state.survivors) is None:
            raise SystemExit("a node did not start")
        self.order((), 0)
        while not self.store.check([f"done/{node}" for node in self.state.survivors]):
            time.sleep(0.01)
            if (joined := self.come()) or self.lost():
                self.recover(joined)
        for node in self.state.survivors:
            self.processes[node].wait(30)
        return self.found()

    def found(self) -> dict[str, Any]:
        sums: dict[str, set[float]] = {}
        for node in self.state.place_of:
            for layer, value in json.loads(self.store.get(f"done/{node}")).items():
                sums.setdefault(layer, set()).add(value)
        unequal = [layer for layer, values in sums.items() if len(values) > 1]
        if unequal or len(sums) != self.options.layers:
            raise SystemExit(f"replicas of layers {unequal} differ")
        losses = [json.loads(self.store.get(f"loss/{step}")) for step in range(self.n_steps())]
        return {"losses": losses, "plans": [self.plan(number) for number in range(len(self.states))]}

    def n_steps(self) -> int:
        """How many were made: fewer than were asked for, where the job was told to stop."""
        return int(self.store.get("steps")) if self.store.check(["steps"]) else self.options.steps

    def plan(self, number: int) -> dict[str, Any]:
        """What a plan was thought to take, with the costs that were measured in it, and what it took."""
        state: State = self.states[number]
        generation = self.recoveries[number - 1]["generation"] if number else 0
        took = []
        for step in range(self.n_steps()):
            keys = [f"took/{generation}/{step}/{node}" for node in state.place_of]
            if self.store.check(keys):
                took.append([json.loads(self.store.get(key)) for key in keys])
        steady = took[1:]
        told: dict[str, Any] = {"kind": state.plan.kind, "stages": state.plan.stages, "batches": state.plan.batches}
        if number:
            told["recovery"] = self.recoveries[number - 1]
            if took:
                told["seconds_to_next_step"] = max(one["at_s"] for one in took[0]) - self.recoveries[number - 1]["at_s"]
        if steady:
            cost = {
                name: statistics.fmean(one[name] for one in steady[-1] if name in one)
                for name in ("forward_s", "backward_s", "latency_s")
            }
            model = replace(self.model, forward_s=cost["forward_s"], backward_s=cost["backward_s"])
            cluster = replace(self.cluster, latency_s=cost["latency_s"])
            told["estimated_s"] = estimate(state, model, cluster).step_s
            told["measured_s"] = statistics.median(max(one["step_s"] for one in row) for row in steady)
            told["cost"] = cost
            told["memory"] = self.memory(state, steady[-1])
        return told

    def memory(self, state: State, took: list[dict[str, Any]]) -> dict[str, float]:
        """Peaks that were counted against equation 14, which gets what one micro-batch keeps in one layer."""
        measured = dict(zip(state.place_of.values(), took, strict=True))
        kept = statistics.median(one["activation_bytes"] for one in took)
        model = replace(self.model, activation_bytes=kept)
        errors, most = [], under_way(state, self.model, self.cluster.memory_bytes)
        for (pipeline, stage), one in measured.items():
            stages = state.plan.stages[pipeline]
            reckoned = stage_bytes(model, len(stages), stage, stages[stage], most[pipeline, stage])
            errors.append(reckoned / one["peak_bytes"] - 1)
        return {"worst_error": max(errors, key=abs), "most_bytes": max(one["peak_bytes"] for one in took)}


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    job = Job(options)
    try:
        found = job.run()
    finally:
        for process in job.processes.values():
            if process.poll() is None:
                process.kill()
    if options.json:
        print(json.dumps(found))
        return
    for plan in found["plans"]:
        lengths = [list(one) for one in plan["stages"]]
        print(f"{plan['kind']}: layers {lengths}, micro-batches {list(plan['batches'])}")
        if "recovery" in plan:
            after = plan["recovery"]
            print(f"  lost {after['lost']}, joined {after['joined']} in step {after['applied']}; ", end="")
            print(f"{after['moved_bytes'] / 1e3:.0f} kB moved; ", end="")
            print(f"the next step was done {plan.get('seconds_to_next_step', float('nan')):.2f} s later")
        if "measured_s" in plan:
            took, thought = 1e3 * plan["measured_s"], 1e3 * plan["estimated_s"]
            print(f"  a step takes {took:.1f} ms, estimated {thought:.1f} ms ({thought / took - 1:+.1%})")
            print(f"  memory is estimated to {plan['memory']['worst_error']:+.1%} at worst")
    print("losses", " ".join(f"{loss:.6f}" for loss in found["losses"]))


if __name__ == "__main__":
    main()
