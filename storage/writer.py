"""Writer: rows of blocks -> the store, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.bus import Message
from pacehound.clock import Clock, SystemClock
from storage.blocks import Span
from storage.client import Store
from storage.gather import Gathered, gather
from storage.missing_rows import missing_rows


class Writer:
    """Writes messages; when `write` or `write_block` returns, they are on disk and may be committed.

    Messages may be repeated, in other portions too: every row has an identity (the ORDER BY of its table), and the
    views show each once. What is written as blocks is in the tables once, before any merge. When it raises, nothing is
    lost: the same messages are written again.

    Parameters
    ----------
    store
        Where to.
    clock
        Stamps dead letters.

    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def write(self, messages: Sequence[Message]) -> Gathered:
        """Write `messages`, whatever their offsets; returns what they held.

        Raises
        ------
        Unavailable
            The store did not take them; write the same messages again later.

        """
        gathered = gather(messages, self._clock)
        for insert in gathered.inserts:
            self._store.insert(insert.table, insert.rows)
        return gathered

    def write_block(self, span: Span, gathered: Gathered, log: str, *, is_repeat: bool) -> None:
        """Write what was gathered from the messages of a block, exactly once.

        Parameters
        ----------
        span
            The block, as decided (`storage.block_boundaries`): the same offsets are the same block for every writer.
        gathered
            What its messages hold.
        log
            Which log the offsets belong to.
        is_repeat
            It may have been written before, wholly or in part: the store is asked whether everything is there.

        Raises
        ------
        Unavailable
            The store did not take everything; write the same block again later, with `is_repeat`.

        """
        for insert in gathered.inserts:
            # Where it begins names the block: where it ends was decided for everybody.
            token = f"{log}/{span.topic}/{span.partition}/{span.first}/{insert.name}"
            self._store.insert(insert.table, insert.rows, token=token)
            if is_repeat:
                # Without the token: it is remembered, and these rows are not there.
                self._store.insert(insert.table, missing_rows(self._store, insert.table, insert.rows))
