"""The callbacks in the frameworks themselves: an order is carried out once, before the step that was agreed."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.agent.trainer_listener import TrainerListener
from collector.agent.trainers import Trainers
from pacehound.model.orders import Apply, Confirm, Offer
from pacehound.trainer import Order, smallest_over_ranks
from pacehound.trainer.handlers import Handlers
from tests.fakes.ordered_job import MS, Clock

AT_STEP = 8


class Beside:
    """An agent whose work is done in the training's own thread, so that nothing depends on how fast that is."""

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self.trainers, self.clock = Trainers(TrainerListener(run_dir)), clock

    def step(self, *_: object) -> None:
        self.clock.now_ns += 300 * MS
        self.trainers.look([])
        states = {one.state for one in self.trainers.answers()}
        if self.trainers.listener.trainers and not self.trainers.told_of:
            self.trainers.offer(Offer(ticket=1, kind="collect", payload='{"generation": 2}'), "planned", 0, [], 1)
        elif states == {"able"}:
            self.trainers.apply(Apply(ticket=1, step=AT_STEP), 1)
        elif states == {"armed"}:
            self.trainers.confirm(Confirm(ticket=1))


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    clock = Clock()
    monkeypatch.setattr("pacehound.trainer.control.time", clock)
    monkeypatch.setenv("PACEHOUND_RUN_DIR", str(tmp_path))
    agent = Beside(tmp_path, clock)
    yield agent
    agent.trainers.listener.close()


def assert_carried_out(done: list[tuple[int, Any, int]], beside: Beside) -> None:
    assert done == [(AT_STEP, {"generation": 2}, AT_STEP)]
    beside.trainers.look([])
    assert [(one.rank, one.state, one.step) for one in beside.trainers.answers()] == [(0, "applied", AT_STEP)]
    assert beside.trainers.listener.trainers == {}, "it hangs up when the training is over"


@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("agree", [None, smallest_over_ranks])
def test_lightning(tmp_path: Path, beside: Beside, accumulated: int, agree: Any) -> None:
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed (the extra `ordinary`)")
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from pacehound.trainer.lightning import OrdersCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            beside.step()
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    done: list[tuple[int, Any, int]] = []
    orders = OrdersCallback(
        {"collect": lambda order, trainer: done.append((order.step, order.payload, trainer.global_step))},
        agree=agree,
        agree_every=2,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(
            accelerator="cpu", devices=1, max_steps=20, accumulate_grad_batches=accumulated, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[orders],
            default_root_dir=tmp_path,
        ).fit(Model(), DataLoader(TensorDataset(torch.ones(32 * accumulated, 4))))  # fmt: skip
    assert_carried_out(done, beside)


@pytest.mark.parametrize("accumulated", [1, 3])
def test_hugging_face(tmp_path: Path, beside: Beside, accumulated: int) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (the extra `ordinary`)")
    pytest.importorskip("accelerate", reason="accelerate is not installed (the extra `ordinary`)")
    import torch

    from pacehound.trainer.hugging_face import OrdersCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any) -> dict[str, Any]:
            beside.step()
            return {"loss": self.layer(x).square().mean()}

    done: list[tuple[int, Any, int]] = []
    orders = OrdersCallback(
        {"collect": lambda order, arguments, state: done.append((order.step, order.payload, state.global_step))}
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=20, per_device_train_batch_size=1, save_strategy="no",
        gradient_accumulation_steps=accumulated, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    rows = [{"x": torch.ones(4)} for _ in range(32)]
    transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[orders]).train()
    assert_carried_out(done, beside)


def test_handlers_are_copied_and_sent_without_their_connection(beside: Beside) -> None:
    handlers = Handlers({"collect": print})
    handlers.begin(0, 1)
    for copied in (copy.deepcopy(handlers), pickle.loads(pickle.dumps(handlers))):
        copied.at_step(1)
        copied.begin(0, 1)
    beside.trainers.look([])


def test_a_kind_that_cannot_be_one_is_said_before_the_training_begins() -> None:
    with pytest.raises(ValueError, match="'Collect!' is no kind"):
        Handlers({"Collect!": print})


def test_what_a_handler_raises_is_the_scripts(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(order: Order) -> None:
        raise RuntimeError("no memory")

    handlers = Handlers({"collect": handler})
    handlers.begin(0, 1)
    for step in range(AT_STEP):
        beside.step()
        handlers.at_step(step)
    with pytest.raises(RuntimeError, match="no memory"):
        handlers.at_step(AT_STEP)
    assert {one.state for one in beside.trainers.answers()} <= {"confirmed", "applied"}
