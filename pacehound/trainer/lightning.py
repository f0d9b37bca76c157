"""Orders in a Lightning `Trainer`, without a loop of one's own.

lightning.Trainer(callbacks=[OrdersCallback({"collect": lambda order, trainer: gc.collect()})])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pacehound.trainer.connecting import AGREE_EVERY
from pacehound.trainer.handlers import Handlers
from pacehound.trainer.order import Agree, Can, Order


class OrdersCallback(Callback):
    """Takes orders before the first batch of each optimizer step; steps are those of `trainer.global_step`.

    Parameters
    ----------
    handlers
        By kind: called with the order and the trainer.
    can, agree, agree_every
        As of `pacehound.trainer.connect`.

    """

    def __init__(
        self,
        handlers: Mapping[str, Callable[[Order, Trainer], object]],
        *,
        can: Can | None = None,
        agree: Agree | None = None,
        agree_every: int = AGREE_EVERY,
    ) -> None:
        self._orders = Handlers(handlers, can=can, agree=agree, agree_every=agree_every)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to take them."""
        self._orders.begin(trainer.global_rank, trainer.world_size)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Carry out what is due; of an accumulated step before its first batch."""
        self._orders.at_step(trainer.global_step, trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take no more."""
        self._orders.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take no more."""
        self._orders.end()
