"""Writer: rows of blocks -> the store, each exactly once."""

from __future__ import annotations

from storage.blocks import Span
from storage.client import Store
from storage.gather import Gathered
from storage.missing_rows import missing_rows


class Writer:
    """Writes blocks of messages; when `write_block` returns, they are on disk and may be committed.

    A block is in the tables once, before any merge. When it raises, nothing is lost: the same block is written again.

    Parameters
    ----------
    store
        Where to.

    """

    def __init__(self, store: Store) -> None:
        self._store = store

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
