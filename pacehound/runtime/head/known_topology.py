"""Who is in which communicator, kept across the life of a head.

Agents introduce a communicator once. A head that is started again after a crash would not know the communicators of
the jobs that go on, so it keeps their topology in a file (what `topology`, a compacted topic, is on Kafka) and
repeats each before the first message that speaks of it. Jobs that are gone never speak again, so that nothing of
theirs is opened.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pacehound.bus import Message
from pacehound.bus.recording import Recording, RecordingWriter
from pacehound.errors import InvalidInput, RejectedMessage
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostEvidence, HostSample, HostVitals, Markers, Progress, Topology
from pacehound.model.operations import Operations

logger = logging.getLogger(__name__)

MAX_JOBS = 1_000
"""Jobs that are remembered, by who spoke last: one whose machines have vanished never says that it has ended."""

_Key = tuple[str, int, str, str]  # job, attempt, host, communicator
_FromHost = CallBatch | Topology | Progress | Markers | HostSample | HostVitals | HostEvidence | Operations


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
        if path is None:
            return
        self._kept = _read(path)
        self._spoken = dict.fromkeys(key[0] for key in self._kept)
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        self._writer = RecordingWriter(scratch)
        for value in self._kept.values():
            self._append(value)
        scratch.replace(path)

    def missing_before(self, event: _FromHost) -> bytes | None:
        """The topology to repeat before `event`, once per life of this head; usually none."""
        if isinstance(event, (Topology, HostSample, HostVitals, HostEvidence, Operations)):
            return None
        key = (event.job, event.attempt, event.host, event.communicator)
        if key in self._made:
            return None
        self._made.add(key)
        return self._kept.get(key)

    def note(self, event: _FromHost, value: bytes) -> None:
        """Keep it; forget those of a host on which the job has closed, and of jobs that were silent for longest."""
        self._spoken.pop(event.job, None)
        self._spoken[event.job] = None
        if len(self._spoken) > MAX_JOBS:
            silent = next(iter(self._spoken))
            del self._spoken[silent]
            self._kept = {key: value for key, value in self._kept.items() if key[0] != silent}
            self._made = {key for key in self._made if key[0] != silent}
        if isinstance(event, Topology):
            key = (event.job, event.attempt, event.host, event.communicator)
            self._made.add(key)
            self._kept[key] = value
            self._append(value)
        elif isinstance(event, HostSample) and event.closed:
            _forget(self._kept, event)
            self._made = {key for key in self._made if key[:3] != (event.job, event.attempt, event.host)}
            self._append(value)

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _append(self, value: bytes) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(Message(topic="topology", key="", partition=0, offset=0, value=value))
            self._writer.flush()
        except OSError as error:
            logger.warning("the topology is not kept any more: %s", error)
            self._writer = None


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
