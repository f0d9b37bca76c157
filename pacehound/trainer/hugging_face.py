"""Orders in a `Trainer` of Hugging Face's transformers, without a loop of one's own.

Trainer(…, callbacks=[OrdersCallback({"collect": lambda order, arguments, state: gc.collect()})])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pacehound.trainer.connecting import AGREE_EVERY
from pacehound.trainer.handlers import Handlers
from pacehound.trainer.order import Agree, Can, Order


class OrdersCallback(TrainerCallback):
    """Takes orders before each optimizer step; steps are those of `state.global_step`.

    Parameters
    ----------
    handlers
        By kind: called with the order, the training's arguments and its state.
    can, agree, agree_every
        As of `pacehound.trainer.connect`.

    """

    def __init__(
        self,
        handlers: Mapping[str, Callable[[Order, TrainingArguments, TrainerState], object]],
        *,
        can: Can | None = None,
        agree: Agree | None = None,
        agree_every: int = AGREE_EVERY,
    ) -> None:
        self._orders = Handlers(handlers, can=can, agree=agree, agree_every=agree_every)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin to take them."""
        self._orders.begin(args.process_index, args.world_size)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Carry out what is due."""
        self._orders.at_step(state.global_step, args, state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take no more."""
        self._orders.end()
