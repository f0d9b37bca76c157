"""One node of examples/train_hybrid.py: its layers, the 1F1B order, exchanging gradients, going on after a loss.

A step counts when all nodes have said that their gradients are complete: then each applies them. Who learns of a lost
node before that does the step again with the same samples; who had all gradients when another one had applied them
applies them too. So no sample is lost, and none is used twice.

Between two steps nodes may change places by an order: all stand still, each keeps its layers in host memory, sends them
to whoever takes its place, and goes on with the layers of its new one. The training does not change by it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import threading
import time
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from hybrid_model import Adam, Counted, Layer
from hybrid_schedule import one_f_one_b

from pacehound import trainer

Order = dict[str, Any]
POLL_S = 0.01
WAIT = timedelta(minutes=2)
"""A rank may be held for a quarter of it (docs/commands.md), and validation holds ranks for up to 20 s."""


class Lost(RuntimeError):
    """A node is gone: this plan is over."""


class Worker:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.node = options, options.node
        self.store = dist.TCPStore(options.address, options.port, is_master=False, timeout=timedelta(seconds=60))
        self.watching = dist.TCPStore(options.address, options.port, is_master=False, timeout=timedelta(seconds=60))
        n_nodes = options.dp * options.pp
        self.control = trainer.connect(
            "topology",
            can=lambda order: self.refusal(order.payload) or True,
            agree=trainer.smallest_over_ranks,
            agree_every=1,  # so that all steps make the same calls
            layout=(options.dp, options.pp),
            rank=options.node,
            world_size=n_nodes,
        )
        self.rank_at = list(range(n_nodes))
        self.layers: dict[int, Layer] = {}
        self.optimizer: Adam | None = None
        self.applied, self.is_complete, self.generation, self.n_operations = 0, False, -1, 0
        self.is_over, self.groups = False, list[Any]()
        self.costs_s: dict[str, list[float]] = {"forward": [], "backward": []}
        torch.manual_seed(7)
        self.teacher = torch.randn(options.width, options.width) / options.width**0.5

    def samples(self, micro_batch: int) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        """Those of a micro-batch of the present step: their numbers, what goes in, what should come out."""
        size = self.options.micro_batch
        first = (self.applied * self.order["n_micro_batches"] + micro_batch) * size
        x = torch.stack(
            [torch.randn(self.options.width, generator=torch.Generator().manual_seed(first + n)) for n in range(size)]
        )
        return list(range(first, first + size)), x, torch.tanh(x @ self.teacher)

    # --- one plan -----------------------------------------------------------------------------------------------------

    def adopt(self, order: Order) -> None:
        """Make the groups of a plan anew, and fetch the layers that are missing from the nodes that have them."""
        self.order, nodes = order, order["nodes"]
        if self.applied == order["applied"] - 1 and self.is_complete:
            self.apply()
        assert self.applied == order["applied"] or not self.layers, "a node is a step behind"
        self.applied, self.is_complete = order["applied"], False
        self.is_over = False
        self.rank = {node: rank for rank, node in enumerate(nodes)}
        store = dist.PrefixStore(f"generation-{self.generation}", self.store)
        dist.init_process_group("gloo", store=store, rank=self.rank[self.node], world_size=len(nodes), timeout=WAIT)
        self.take_place()
        threading.Thread(target=self.watch, args=(self.generation, dist.group.WORLD), daemon=True).start()
        self.move(order["moves"])
        self.costs_s = {"forward": [], "backward": []}
        self.latency_s = self.measured_latency_s()

    def take_place(self) -> None:
        """The groups of the plan, and which layers are this node's in it."""
        order = self.order
        self.groups = [
            dist.new_group([self.rank[node] for node in one["nodes"]], timeout=WAIT) if len(one["nodes"]) > 1 else None
            for one in order["exchanges"]
        ]  # of whoever is no member it is a number
        places = {
            node: (p, s) for p, row in enumerate(order["holders"]) for s, node in enumerate(row) if node is not None
        }
        # A node that is left over sends what others need of it, and then says only that it is there.
        self.pipeline, self.stage = places.get(self.node, (None, 0))
        sizes = [] if self.pipeline is None else order["stages"][self.pipeline]
        self.span = range(sum(sizes[: self.stage]), sum(sizes[: self.stage + 1]))

    def move(self, moves: list[Order]) -> None:
        """Layer by layer in one order for all, so that nobody waits for somebody who waits for him."""
        for one in moves:
            if self.node == one["source"]:
                dist.send(
                    torch.cat([t.flatten() for t in self.layers[one["layer"]].tensors()]), self.rank[one["target"]]
                )
            elif self.node == one["target"]:
                layer = self.layers[one["layer"]] = Layer(one["layer"], self.options.width)
                flat = torch.empty(sum(t.numel() for t in layer.tensors()))
                dist.recv(flat, self.rank[one["source"]])
                for t, values in zip(layer.tensors(), flat.split([t.numel() for t in layer.tensors()]), strict=True):
                    t.copy_(values.view_as(t))
        if self.generation == 0 and not self.layers:
            self.layers = {index: Layer(index, self.options.width) for index in self.span}
        self.layers = {index: self.layers[index] for index in self.span}

    def measured_latency_s(self) -> float:
        """Of one hop of a ring, from the smallest all-reduce that there is."""
        times = []
        for _ in range(7):
            begun_s = time.perf_counter()
            dist.all_reduce(torch.zeros(1))
            times.append(time.perf_counter() - begun_s)
        return statistics.median(times) / max(1, 2 * (len(self.order["nodes"]) - 1))

    def watch(self, generation: int, group: dist.ProcessGroup) -> None:
        """Whoever waits for the dead, or for one who does, is woken; who was about to wait, too."""
        while self.generation == generation:
            time.sleep(POLL_S)
            if int(self.watching.get("generation")) > generation:
                self.is_over = True
                for one in (group, *self.groups):
                    if isinstance(one, dist.ProcessGroup):
                        one._get_backend(torch.device("cpu")).abort()

    # --- other places -----------------------------------------------------------------------------------------------

    def refusal(self, rank_at: object) -> str:
        """Why nodes cannot change places in this way, else nothing."""
        if sorted(self.order["nodes"]) != list(range(len(self.rank_at))):
            return "a node was lost: places are as they are"
        is_one = isinstance(rank_at, list) and sorted(rank_at) == list(range(len(self.rank_at)))
        return "" if is_one else f"{rank_at} does not name each of {len(self.rank_at)} ranks once"

    def take_places(self, rank_at: list[int]) -> None:
        """The four steps of Falcon 5.3: hold, dump to host memory, swap, resume."""
        dist.barrier()
        before = self.order["holders"]
        after = [[rank_at[s * self.options.dp + p] for s in range(len(row))] for p, row in enumerate(before)]
        moved = {b: a for row, to in zip(before, after, strict=True) for b, a in zip(row, to, strict=True)}
        stage_of = {node: s for row in before for s, node in enumerate(row)}
        moves = [
            {"layer": layer, "source": was, "target": now}
            for row, to, sizes in zip(before, after, self.order["stages"], strict=True)
            for s, (was, now) in enumerate(zip(row, to, strict=True))
            if stage_of[now] != s  # whoever has them already, as a replica, needs nothing
            for layer in range(sum(sizes[:s]), sum(sizes[: s + 1]))
        ]
        exchanges = [{**one, "nodes": sorted(moved[node] for node in one["nodes"])} for one in self.order["exchanges"]]
        routes = [[moved[node] for node in route] for route in self.order["routes"]]
        self.order = {**self.order, "holders": after, "exchanges": exchanges, "routes": routes}
        for group in self.groups:
            if isinstance(group, dist.ProcessGroup):
                dist.destroy_process_group(group)
        self.take_place()
        self.move(moves)
        self.rank_at = rank_at
        dist.barrier()

    # --- one step -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.n_operations = 0
        for layer in self.layers.values():
            layer.zero_grad(set_to_none=False)
            for one in layer.parameters():
                one.grad = torch.zeros_like(one)
        said = self.run_pipeline()
        for number in sorted(range(len(self.groups)), key=lambda n: self.order["exchanges"][n]["round"]):
            exchange, group = self.order["exchanges"][number], self.groups[number]
            if group is not None and self.node in exchange["nodes"]:
                self.may_die()
                gradients = [one.grad for index in range(*exchange["span"]) for one in self.layers[index].parameters()]
                flat = torch.cat([one.flatten() for one in gradients])
                dist.all_reduce(flat, group=group)
                for one, values in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
                    one.copy_(values.view_as(one))
        self.is_complete = True
        self.may_die()
        # From here on the step counts: whoever gets past it knows that all gradients are complete everywhere.
        dist.all_reduce(said)
        self.may_die()
        loss, n, numbers, squares = said.tolist()
        first, n_all = self.applied * self.n_samples(), self.n_samples()
        assert (n, numbers) == (n_all, sum(range(first, first + n_all))), "a sample was lost or used twice"
        assert squares == sum(x * x for x in range(first, first + n_all)), "a sample was lost or used twice"
        self.store.set(f"loss/{self.applied}", json.dumps(loss / n))
        self.apply()

    def static_bytes(self) -> int:
        """Weights, moments and gradients."""
        held = [
            t for layer in self.layers.values() for t in (*layer.tensors(), *(one.grad for one in layer.parameters()))
        ]
        return sum(t.untyped_storage().nbytes() for t in held)

    def n_samples(self) -> int:
        return int(self.order["n_micro_batches"]) * int(self.options.micro_batch)

    def apply(self) -> None:
        self.applied, self.is_complete = self.applied + 1, False
        if self.optimizer is None:
            self.optimizer = Adam(list(self.layers.values()))
        self.optimizer.layers, self.optimizer.number = list(self.layers.values()), self.applied
        self.optimizer.step()

    def operations(self) -> list[tuple[str, int]]:
        """In which order: 1F1B over the own pipeline's micro-batches; where a loss reaches it, as ordered."""
        ordered: list[tuple[str, int]] | None = self.order["orders"].get(str(self.node))
        if ordered is not None:
            return ordered
        batches = self.order["batches"]
        first, n_stages = sum(batches[: self.pipeline]), len(self.order["stages"][self.pipeline])
        return [(kind, first + one) for kind, one in one_f_one_b(self.stage, n_stages, batches[self.pipeline])]

    def run_pipeline(self) -> torch.Tensor:
        """All micro-batches that pass here; the last stage says the loss and which samples it was of."""
        if self.pipeline is None:
            return torch.zeros(4, dtype=torch.float64)
        self.counted = Counted(
            {t.untyped_storage().data_ptr() for one in self.layers.values() for t in one.parameters()}
        )
        said, ends, sent = torch.zeros(4, dtype=torch.float64), {}, []
        shape = (self.options.micro_batch, self.options.width)
        for kind, number in self.operations():
            self.may_die()
            route = self.order["routes"][number]
            place = route.index(self.node)
            before = self.rank[route[place - 1]] if place else None
            after = self.rank[route[place + 1]] if place + 1 < len(route) else None
            if kind == "forward":
                x = torch.empty(shape)
                if before is not None:
                    dist.recv(x, before, tag=2 * number)
                begun_s = time.perf_counter()
                if before is None or after is None:
                    numbers, drawn, wanted = self.samples(number)
                    x = drawn if before is None else x
                y = x.requires_grad_(before is not None)
                with self.counted.hooks():
                    for index in self.span:
                        y = self.layers[index](y)
                        time.sleep(self.options.pace_s)
                    if after is None:
                        y = ((y - wanted) ** 2).mean(dim=1).sum()
                self.counted.first_bytes = self.counted.first_bytes or self.counted.bytes
                if after is None:
                    said += torch.tensor(
                        [y.item(), len(numbers), sum(numbers), sum(n * n for n in numbers)], dtype=torch.float64
                    )
                    y = y / self.n_samples()
                self.costs_s["forward"].append((time.perf_counter() - begun_s) / len(self.span))
                ends[number] = x, y
                if after is not None:
                    sent.append((dist.isend(y.detach(), after, tag=2 * number), y))
            else:
                x, y = ends.pop(number)
                gradient = None
                if after is not None:
                    gradient = torch.empty(shape)
                    dist.recv(gradient, after, tag=2 * number + 1)
                begun_s = time.perf_counter()
                y.backward(gradient)
                time.sleep(2 * self.options.pace_s * len(self.span))
                self.costs_s["backward"].append((time.perf_counter() - begun_s) / len(self.span))
                if before is not None:
                    sent.append((dist.isend(x.grad, before, tag=2 * number + 1), x.grad))
        for work, _ in sent:
            work.wait()
        return said

    def may_die(self) -> None:
        """Be killed (-9) before the operation of the step that was asked for."""
        if self.is_over:
            raise Lost("this plan is over")
        if (self.applied, self.n_operations) == (self.options.die_step, self.options.die_operation):
            os.kill(os.getpid(), signal.SIGKILL)
        self.n_operations += 1

    def is_last(self, took_s: float) -> bool:
        """Write the step down; whether somebody wants the job to end, all nodes after the same step."""
        if self.options.csv and self.node == 0:
            with open(self.options.csv, "a", encoding="utf-8") as file:
                file.write(f"{self.applied - 1},{took_s:.6f},{' '.join(map(str, self.rank_at))}\n")
        if not self.options.stop:
            return False
        asked = torch.tensor([float(self.node == 0 and os.path.exists(self.options.stop))])
        dist.broadcast(asked, 0)
        if asked and self.node == 0:
            self.store.set("steps", str(self.applied))
        return bool(asked)

    # --- all steps ----------------------------------------------------------------------------------------------------

    def next_order(self) -> Order | None:
        """Say how far this node is, and wait for what to do; nothing where the job is done without it."""
        while int(self.store.get("generation")) <= self.generation:
            time.sleep(POLL_S)
        self.generation = int(self.store.get("generation"))
        said = {"applied": self.applied, "is_complete": self.is_complete, "answer": self.answer()}
        self.store.set(f"report/{self.generation}/{self.node}", json.dumps(said))
        while not self.store.check([f"order/{self.generation}"]):
            time.sleep(POLL_S)
            if int(self.store.get("generation")) > self.generation:
                return self.next_order()
        return json.loads(self.store.get(f"order/{self.generation}"))

    def answer(self) -> Order | None:
        """What this node was told to go on with after a loss, where somebody listens; the launcher compares them."""
        if not self.store.check([f"question/{self.generation}"]):
            return None
        question = json.loads(self.store.get(f"question/{self.generation}"))
        found = self.control.recovery(question["survivors"], question["about"], within_s=self.options.ask_s)
        return None if found is None else asdict(found)

    def run(self) -> None:
        if self.options.join_step >= 0:
            while not self.store.check([f"loss/{self.options.join_step}"]):
                time.sleep(POLL_S)
            self.generation = int(self.store.get("generation"))
            self.store.set(f"here/{self.node}", "")
        order = self.next_order()
        while order is not None and self.node in order["nodes"]:
            try:
                self.adopt(order)
                while self.applied < self.options.steps:
                    begun_s = time.perf_counter()
                    # Once a node is lost nobody changes places any more, for not all may have heard the same.
                    found = self.control.at_step(self.applied) if self.generation == 0 else None
                    if found is not None:
                        self.take_places(found.payload)
                    self.step()
                    if self.is_last(time.perf_counter() - begun_s):
                        break
                    took = {"step_s": time.perf_counter() - begun_s, "latency_s": self.latency_s, "at_s": time.time()}
                    if self.pipeline is not None:
                        took |= {"peak_bytes": self.static_bytes() + self.counted.most_bytes}
                        took |= {"activation_bytes": self.counted.first_bytes / len(self.span)}
                    took |= {f"{kind}_s": statistics.median(costs) for kind, costs in self.costs_s.items() if costs}
                    self.store.set(f"took/{self.generation}/{self.applied - 1}/{self.node}", json.dumps(took))
                    if self.applied == order["applied"] + 1:  # the first step of a plan warms up
                        self.costs_s = {"forward": [], "backward": []}
                dist.barrier()
                break
            except RuntimeError as error:
                if "was lost" in str(error):
                    raise
            finally:
                self.groups = []  # their sockets close with them, and whoever waits for this node hears of it
                if dist.is_initialized():
                    dist.destroy_process_group()
            order = self.next_order()
        sums = {
            index: sum(float(t.double().sum()) for t in layer.tensors()) for index, layer in sorted(self.layers.items())
        }
        self.store.set(f"done/{self.node}", json.dumps(sums))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("port", "node", "width", "micro-batch", "steps", "dp", "pp", "join-step", "die-step", "die-operation"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--csv", default="")
    parser.add_argument("--stop", default="")
    parser.add_argument("--pace-s", type=float, required=True)
    parser.add_argument("--ask-s", type=float, default=2.0)
    torch.set_num_threads(1)
    Worker(parser.parse_args()).run()
    # gloo's threads, some of them of a plan that was given up, are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
