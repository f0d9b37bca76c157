"""What a training script may import to take orders at its steps: all ranks apply one at the same step, or none does.

    from pacehound import trainer

    control = trainer.connect("microbatches")
    for step in range(steps):
        order = control.at_step(step)
        if order is not None:
            n_micro_batches = order.payload[rank]

In: what this host's agent says over a socket in the run folder. Out: orders for the script, and what the rank says of
them. Must not import anything but the standard library, and in `lightning` and `hugging_face` the framework that each
is named for.
Where nobody listens nothing happens: no error of ours reaches the script, and nothing waits but `Control.recovery`,
until its deadline.
"""

from pacehound.trainer.agreeing import smallest_over_ranks
from pacehound.trainer.connecting import connect
from pacehound.trainer.control import Control
from pacehound.trainer.order import Order
from pacehound.trainer.recovering import Recovery

__all__ = ["Control", "Order", "Recovery", "connect", "smallest_over_ranks"]
