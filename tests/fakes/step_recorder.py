"""What tests of recorded training steps put in place of a recorder and of torch's optimizer hooks."""

from __future__ import annotations

from types import SimpleNamespace

from pacehound.instrument import layout


class StepRecorder:
    """Keeps what would be written."""

    def __init__(self):
        self.rank, self.is_on = 3, True
        self.rows, self.notes = [], []

    def write(self, record, kind, handle, *fields):
        record.pack(kind, self.rank, handle, *fields)
        assert kind == layout.OPERATION
        self.rows.append(fields)

    def note(self, text):
        self.notes.append(text)

    def times(self, step=1):
        """(start, end) by type and micro-batch."""
        return {(row[3], row[6]): (row[0], row[1]) for row in self.rows if row[2] == step}


def optimizer_hooks(operations):
    """The hooks that `operations` registers before and after an optimizer's step."""
    hooks = []
    operations.optimizers(
        SimpleNamespace(register_optimizer_step_pre_hook=hooks.append, register_optimizer_step_post_hook=hooks.append)
    )
    return hooks
