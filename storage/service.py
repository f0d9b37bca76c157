"""The writer process: bus -> blocks -> store, then the commit; nothing lost, nothing doubled, whoever dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from pacehound.bus import Message, Place
from pacehound.clock import Clock, SystemClock
from pacehound.errors import InvalidInput, Unavailable
from pacehound.model import codec, topics
from pacehound.model.events import DeadLetter
from pacehound.model.routing import route
from pacehound.model.topics import Topic
from pacehound.runtime.metric_names import (
    LAST_BATCH,
    STORE_MESSAGES,
    WRITER_BLOCKS,
    WRITER_DEAD_LETTERS,
    WRITER_FAILURES,
    WRITER_HELD_BYTES,
    WRITER_INSERT_SECONDS,
    WRITER_LAG,
    WRITER_REPEATS,
    WRITER_ROWS,
    WRITER_WINDOWS,
)
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import StoreSettings
from storage.block_boundaries import BlockBoundaries
from storage.blocks import BLOCK_BYTES, Block
from storage.client import Store
from storage.gather import Gathered
from storage.gather_ahead import GatherAhead
from storage.held_messages import HeldMessages
from storage.retention import apply_retention
from storage.windows import keep_due_windows
from storage.writer import Writer

logger = logging.getLogger(__name__)

_MAX_POLL = 128
# Of payload whose rows are in memory, and as much again for the next round: large, because what was decided about the
# blocks of a round is asked for at once, and committed at once.
_ROUND_BYTES = 2 * BLOCK_BYTES
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 15.0
_LETTERS_WITHIN_S = 30.0
_WINDOWS_EVERY_S = 10.0


class PartitionedConsumer(Protocol):
    """A member of a group, as `pacehound.bus.kafka.KafkaConsumer` is one."""

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """The next messages, in order within each partition; waits up to `timeout_s` for the first."""
        ...

    def commit_to(self, next_offsets: Mapping[Place, int]) -> None:
        """Everything before these offsets has been dealt with."""
        ...

    def pause(self) -> None:
        """Fetch nothing more for now; stay in the group."""
        ...

    def resume(self) -> None:
        """Fetch again."""
        ...

    def lag(self) -> int:
        """Messages behind what was polled."""
        ...


class LetterProducer(Protocol):
    """Where dead letters go; they are durable before the offsets of what they speak of are committed."""

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        """Append; raises `Unavailable` (`BusFull`) when it cannot now."""
        ...

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is acknowledged, or raise `Unavailable`."""
        ...


Subscribe = Callable[[Callable[[list[Place]], None]], PartitionedConsumer]
"""Makes the consumer; it is given what to call with partitions that were taken away."""


class WriterService:
    """One writer; run as many as there are partitions, and the bus shares those among them.

    For each block: decide where it ends (`storage.block_boundaries`), insert with its token, publish what could
    not be stored, commit. A step that fails leaves the block where it is; it is tried again, with a longer pause each
    time, and the store is then asked whether everything is there. While the store is away, messages are read until
    `store.max_held_bytes` are held, and no further.

    Parameters
    ----------
    open_store
        Opens or connects the store; called again while it raises `Unavailable`.
    subscribe
        Makes the consumer, of the topics that are stored.
    letters
        For dead letters.
    settings
        Flush time, bound and retention.
    log
        Names the log that the offsets belong to: a cluster's id, and what tells a topic that was made anew from the one
        before. Under the name of another log, blocks would be taken for written.
    telemetry, clock
        As everywhere.

    """

    def __init__(
        self,
        *,
        open_store: Callable[[], Store],
        subscribe: Subscribe,
        letters: LetterProducer,
        settings: StoreSettings,
        log: str,
        telemetry: Telemetry,
        clock: Clock | None = None,
    ) -> None:
        self._open_store = open_store
        self._letters = letters
        self._settings = settings
        self._log = log
        self._telemetry = telemetry
        self._clock = clock or SystemClock()
        self._held = HeldMessages()
        self._ahead = GatherAhead(self._clock)
        self._uncommitted: dict[Place, int] = {}
        self._store: Store | None = None
        self._is_paused = False
        self._has_more = False
        self._pause_s = _FIRST_PAUSE_S
        self._try_at_s = 0.0
        self._windows_at_s = 0.0
        self._consumer = subscribe(self._revoked)

    def finish(self) -> None:
        """The last step: what is held is written if the store takes it at once."""
        while self._store is not None and self._write_what_is_due(flush_s=0.0):
            pass

    def close(self) -> None:
        """Leave the store; the consumer and the producer are the caller's to close."""
        self._ahead.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def step(self, timeout_s: float) -> None:
        """Poll, unless enough is held already, and write the next blocks that are due.

        Parameters
        ----------
        timeout_s
            How long to wait for the first message where nothing else is to be done.

        Raises
        ------
        InvalidInput
            The store does not let us in: the login, a newer version. Waiting does not help.

        """
        if not (self._has_more and self._holds_enough):
            self._take_in(0.0 if self._has_more else timeout_s)
        self._has_more = False
        if self._clock.monotonic_s() >= self._try_at_s:
            self._has_more = self._write_what_is_due(self._settings.flush_s)
        if self._store is not None:
            self._store.unneeded.give_back_when_due()
        self._telemetry.set(WRITER_LAG, self._consumer.lag() + len(self._held))
        self._telemetry.set(WRITER_HELD_BYTES, self._held.held_bytes)

    @property
    def _holds_enough(self) -> bool:
        """Of what the bus has: what is paused must be fetched again, so this ends well before that is needed."""
        return self._held.held_bytes >= self._settings.max_held_bytes // 2

    def _take_in(self, timeout_s: float) -> None:
        """Poll; again at once while the bus has more than one poll takes, until enough is held."""
        while self._poll(timeout_s) == _MAX_POLL and not self._holds_enough:
            timeout_s = 0.0

    def _poll(self, timeout_s: float) -> int:
        # The rest of a block that somebody else has cut is read in any case: without it nothing would go on.
        is_full = self._held.held_bytes >= self._settings.max_held_bytes and not self._held.waits_for_more
        if is_full:
            # Each time: partitions that were assigned meanwhile are not paused yet.
            self._consumer.pause()
        elif self._is_paused:
            self._consumer.resume()
        self._is_paused = is_full
        try:
            # Also when full: whoever does not poll is put out of the group.
            messages = self._consumer.poll(_MAX_POLL, timeout_s)
        except Unavailable as error:
            self._failed("the bus refuses", error)
            return 0
        self._held.put(messages, self._clock.monotonic_s())
        return len(messages)

    def _write_what_is_due(self, flush_s: float) -> bool:
        """A round of blocks, and afterwards the commit, whatever happened; says whether there may be another."""
        has_more = False
        try:
            store = self._store_now()
        except Unavailable as error:
            self._failed("the store is away", error)
            return False
        try:
            has_more = self._write_round(store, flush_s)
            self._keep_windows(store)
            self._pause_s = _FIRST_PAUSE_S
        except (Unavailable, InvalidInput) as error:
            # A store that has let us in and now refuses has a bad hour; what is held stays held.
            self._failed("the store did not take a block", error)
            self._ahead.forget()
        try:
            self._commit()
        except Unavailable as error:
            self._failed("a commit was not taken", error)
            return False
        return has_more

    def _store_now(self) -> Store:
        if self._store is None:
            store = self._open_store()
            try:
                apply_retention(store, self._settings)
            except BaseException:
                store.close()
                raise
            self._store = store
        return self._store

    def _write_round(self, store: Store, flush_s: float) -> bool:
        """The next blocks of the partitions that have one; says whether there was any."""
        boundaries = BlockBoundaries(store, self._log)
        self._held.know(boundaries.newest(self._held.unasked()))
        now_s = self._clock.monotonic_s()
        blocks = {block.span.place: block for block in _round(self._held.ready(now_s, flush_s))}
        has_found = bool(blocks)
        gathered = self._without_rows(blocks)
        for span in boundaries.decide([block.span for place, block in blocks.items() if not self._held[place].decided]):
            place = span.place
            self._held[place].decided = span
            if span != blocks[place].span:
                del blocks[place], gathered[place]
                block = self._held.block(place, span)
                if block is not None:
                    blocks[place], gathered[place] = block, self._ahead.take(block)
        # The engine takes most of a writer's time, and not in Python: meanwhile the next round is read.
        spans = {place: block.span for place, block in blocks.items()}
        self._ahead.begin(_round(self._held.behind(spans, now_s, flush_s)))
        writer = Writer(store)
        for place, block in blocks.items():
            self._write(writer, block, gathered.pop(place))
        return has_found

    def _without_rows(self, blocks: dict[Place, Block]) -> dict[Place, Gathered]:
        """Read the messages; a block with nothing to store is committed and needs no end that everybody knows.

        Only where nobody has begun it, and only after the commit: were it read again, it would be another block.
        """
        gathered = {place: self._ahead.take(block) for place, block in blocks.items()}
        idle = {
            place: block
            for place, block in blocks.items()
            if gathered[place].is_empty and not self._held[place].is_repeat(block.span.first)
        }
        if idle:
            self._uncommitted |= {place: block.span.last + 1 for place, block in idle.items()}
            self._commit()
            for place, block in idle.items():
                self._held.done(block, self._clock.monotonic_s())
                del blocks[place], gathered[place]
        return gathered

    def _write(self, writer: Writer, block: Block, gathered: Gathered) -> None:
        held = self._held[block.span.place]
        is_repeat = held.is_repeat(block.span.first)
        before_s = self._clock.monotonic_s()
        held.has_failed = True  # until it has not
        writer.write_block(block.span, gathered, self._log, is_repeat=is_repeat)
        self._publish(gathered.dead_letters)
        now_s = self._clock.monotonic_s()
        self._held.done(block, now_s)
        self._uncommitted[block.span.place] = block.span.last + 1
        self._telemetry.add(WRITER_INSERT_SECONDS, max(now_s - before_s, 0.0))
        self._telemetry.add(WRITER_BLOCKS)
        self._telemetry.set(LAST_BATCH, self._clock.now_ns() / 1e9)
        self._telemetry.add(STORE_MESSAGES, len(block.messages))
        if is_repeat:
            self._telemetry.add(WRITER_REPEATS)
        for table, rows in gathered.rows.items():
            self._telemetry.add(WRITER_ROWS, rows, table=table)

    def _publish(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._telemetry.add(WRITER_DEAD_LETTERS, error=letter.error)
            # A letter that does not fit itself is not worth another one.
            if letter.source_topic != topics.DEAD_LETTERS.name:
                topic, key = route(letter)
                self._letters.publish(topic, key, codec.encode(letter))
        if letters:
            self._letters.flush(_LETTERS_WITHIN_S)

    def _commit(self) -> None:
        if self._uncommitted:
            self._consumer.commit_to(dict(self._uncommitted))
            self._uncommitted.clear()

    def _keep_windows(self, store: Store) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._windows_at_s:
            self._windows_at_s = now_s + _WINDOWS_EVERY_S
            try:
                kept = keep_due_windows(store, self._clock.now_ns(), self._settings)
                self._telemetry.add(WRITER_WINDOWS, kept)
            except (Unavailable, InvalidInput) as error:
                # Tried again next time; the blocks do not wait for it.
                self._telemetry.add(WRITER_FAILURES)
                logger.warning("the calls around an incident were not kept", extra={"error": str(error)})

    def _failed(self, what: str, error: Exception) -> None:
        self._telemetry.add(WRITER_FAILURES)
        self._try_at_s = self._clock.monotonic_s() + self._pause_s
        logger.warning(what, extra={"error": str(error), "again_in_s": self._pause_s, "held": self._held.held_bytes})
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def _revoked(self, places: list[Place]) -> None:
        """Somebody else has them now, and begins at what was committed."""
        self._held.forget(places)
        self._ahead.forget()
        for place in places:
            self._uncommitted.pop(place, None)


def _round(blocks: Iterable[Block]) -> Iterator[Block]:
    """As many as are written in a row, the first in any case."""
    n_bytes = 0
    for block in blocks:
        yield block
        n_bytes += sum(len(message.value) for message in block.messages)
        if n_bytes >= _ROUND_BYTES:
            return
