"""A log with partitions and groups as Kafka has them, in memory; one consumer at a time."""

from __future__ import annotations

from pacehound.bus import Message
from pacehound.errors import Unavailable
from pacehound.model.codec import encode
from pacehound.model.routing import route


class PartitionedLog:
    """Messages by topic and partition, and what one group has committed."""

    def __init__(self, partitions=2):
        self.partitions = partitions
        self.messages = {}
        self.committed = {}

    def append(self, event, partition=None, topic=None):
        """One event, on its own topic; the partition follows from the key unless it is given."""
        name, key = route(event)[0].name, route(event)[1]
        place = (topic or name, sum(key.encode()) % self.partitions if partition is None else partition)
        self.append_bytes(place, encode(event), key)
        return place

    def append_bytes(self, place, value, key=""):
        log = self.messages.setdefault(place, [])
        log.append(Message(topic=place[0], key=key, partition=place[1], offset=len(log), value=value))

    @property
    def is_committed(self):
        return all(self.committed.get(place, 0) == len(log) for place, log in self.messages.items())


class LogConsumer:
    """Begins at what was committed; `take` gives it other partitions."""

    def __init__(self, log, on_revoked, places=None):
        self._log, self._on_revoked = log, on_revoked
        self.places = places
        self.next = {}
        self.is_paused = False
        self.polled = 0
        self.max_poll = 1 << 62
        self.refuses_commits = False

    def _mine(self):
        return sorted(self._log.messages if self.places is None else self.places)

    def poll(self, max_messages, timeout_s=0.0):
        self.polled += 1
        taken = []
        if self.is_paused:
            return taken
        for place in self._mine():
            position = self.next.setdefault(place, self._log.committed.get(place, 0))
            room = min(max_messages, self.max_poll) - len(taken)
            found = self._log.messages.get(place, [])[position : position + room]
            self.next[place] = position + len(found)
            taken += found
        return taken

    def take(self, places):
        """A rebalance: what is no longer here is revoked."""
        gone = [place for place in self._mine() if place not in places]
        for place in gone:
            self.next.pop(place, None)
        self.places = list(places)
        self._on_revoked(gone)

    def commit_to(self, next_offsets):
        if self.refuses_commits:
            raise Unavailable("the broker did not take the commit")
        assert set(next_offsets) <= set(self._mine())
        self._log.committed |= next_offsets

    def pause(self):
        self.is_paused = True

    def resume(self):
        self.is_paused = False

    def lag(self):
        return sum(len(self._log.messages.get(place, [])) - self.next.get(place, 0) for place in self._mine())


class Letters:
    """Keeps what is published."""

    def __init__(self):
        self.published = []
        self.flushed = 0

    def publish(self, topic, key, value):
        self.published.append((topic.name, key, value))

    def flush(self, timeout_s):
        self.flushed = len(self.published)
