"""Who is in which communicator, kept across the life of a head.

Agents introduce a communicator once. A head that is started again after a crash would not know the communicators of
the jobs that go on, so it keeps their topology in a file (what `topology`, a compacted topic, is on Kafka) and
repeats each before the first message that speaks of it. Jobs that are gone never speak again, so that nothing of
theirs is opened.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from pacehound.bus import Message
from pacehound.bus.recording import Recording, RecordingWriter
from pacehound.errors import InvalidInput, RejectedMessage
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostEvidence, HostSample, HostVitals, Markers, Progress, Topology
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations

logger = logging.getLogger(__name__)

AGAIN_AFTER_S = 10.0
"""A file that could not be written is written anew so often at most."""

MAX_JOBS = 1_000
"""Jobs that are remembered, by who spoke last: one whose machines have vanished never says that it has ended."""

_Key = tuple[str, int, str, str]  # job, attempt, host, communicator
_FromHost = CallBatch | Flush | Topology | Progress | Markers | HostSample | HostVitals | HostEvidence | Operations


class KnownTopology:
    """Remembers topologies until their job has closed on their host.

    Parameters
    ----------
    path
        A file of its own; read and written anew at the start. `None`: nothing outlives this process.

    """

    def __init__(self, path: Path | None = None) -> None:
        self._kept: dict[_Key, bytes] = {}
        self._made: set[_Key] = set()
        self._spoken: dict[str, None] = {}  # jobs, the one that has been silent for longest first
        self._writer: RecordingWriter | None = None
        self._path = path
        self._again_at_s = float("-inf")
        if path is not None:
            self._kept = _read(path)
            self._spoken = dict.fromkeys(key[0] for key in self._kept)
            self._write_anew(path)

    def missing_before(self, event: _FromHost) -> list[tuple[str, bytes]]:
        """The communicators whose topology is to be repeated before `event`, once per life of this head."""
        if isinstance(event, (Topology, HostSample, HostVitals, HostEvidence, Operations)):
            return []
        spoken_of = [event.communicator] if not isinstance(event, Flush) else _spoken_of(event)
        found = []
        for communicator in spoken_of:
            key = (event.job, event.attempt, event.host, communicator)
            if key not in self._made:
                self._made.add(key)
                if key in self._kept:
                    found.append((communicator, self._kept[key]))
        return found

    def note(self, event: _FromHost, value: bytes, now_s: float) -> None:
        """Keep it, at this monotonic time.

        Those of a host on which the job has closed are forgotten, and those of jobs that were silent for longest.
        """
        self._spoken.pop(event.job, None)
        self._spoken[event.job] = None
        if len(self._spoken) > MAX_JOBS:
            silent = next(iter(self._spoken))
            del self._spoken[silent]
            self._kept = {key: value for key, value in self._kept.items() if key[0] != silent}
            self._made = {key for key in self._made if key[0] != silent}
        if isinstance(event, Topology):
            self._keep(event, value, now_s)
        elif isinstance(event, Flush):
            for topology in event.topologies:
                self._keep(topology, codec.encode(topology), now_s)
        elif isinstance(event, HostSample) and event.closed:
            _forget(self._kept, event)
            self._made = {key for key in self._made if key[:3] != (event.job, event.attempt, event.host)}
            self._append(value, now_s)
        path = self._path
        if self._writer is None and path is not None and now_s >= self._again_at_s:
            self._try(lambda: self._write_anew(path), now_s)

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._path = None

    def _keep(self, topology: Topology, value: bytes, now_s: float) -> None:
        key = (topology.job, topology.attempt, topology.host, topology.communicator)
        self._made.add(key)
        self._kept[key] = value
        self._append(value, now_s)

    def _append(self, value: bytes, now_s: float) -> None:
        if (writer := self._writer) is not None:
            self._try(lambda: _write(writer, (value,)), now_s)

    def _write_anew(self, path: Path) -> None:
        """The file stands as it was until the new one is whole."""
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        writer = RecordingWriter(scratch)
        _write(writer, self._kept.values())
        scratch.replace(path)
        self._writer = writer

    def _try(self, write: Callable[[], None], now_s: float) -> None:
        try:
            write()
        except OSError as error:
            logger.warning("the topology is not kept for now: %s", error)
            self._writer = None
            self._again_at_s = now_s + AGAIN_AFTER_S


def _spoken_of(flush: Flush) -> list[str]:
    """Communicators of which a flush tells without announcing them."""
    announced = {topology.communicator for topology in flush.topologies}
    return [communicator for communicator in flush.communicators if communicator not in announced]


def _write(writer: RecordingWriter, values: Iterable[bytes]) -> None:
    try:
        for value in values:
            writer.write(Message(topic="topology", key="", partition=0, offset=0, value=value))
        writer.flush()
    except OSError:
        with contextlib.suppress(OSError):
            writer.close()
        raise


def _read(path: Path) -> dict[_Key, bytes]:
    kept: dict[_Key, bytes] = {}
    if not path.exists():
        return kept
    try:
        for message in Recording(path):
            for event in codec.decode(message.value):
                if isinstance(event, Topology):
                    kept[event.job, event.attempt, event.host, event.communicator] = message.value
                elif isinstance(event, HostSample):
                    _forget(kept, event)
    except (InvalidInput, RejectedMessage) as error:
        logger.warning("topology after a damaged place is lost: %s", error)
    return kept


def _forget(kept: dict[_Key, bytes], closing: HostSample) -> None:
    for key in [key for key in kept if key[:3] == (closing.job, closing.attempt, closing.host)]:
        del kept[key]
