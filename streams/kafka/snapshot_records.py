"""How the snapshots of partitions stand on their compacted topic: in pieces, each a record that says whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

CHUNK_BYTES = 512 * 1024
"""A snapshot is written in pieces of this size: brokers take messages of 1 MB by default."""

MARKER = "\0partition"
"""The key under which a partition's own snapshot stands."""


def pieces_of(
    topic: str, partition: int, version: int, slot: str, key: str, covered: int, body: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a key's snapshot, which covers its messages up to an offset."""
    pieces = [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]
    for index, piece in enumerate(pieces):
        yield record_key(topic, partition, version, slot, index, key), f"{covered} {len(pieces)} ".encode() + piece


def record_key(topic: str, partition: int, version: int, slot: str, piece: int, key: str) -> bytes:
    """The key of a piece of a snapshot on the compacted topic.

    The owner's name is part of the slot, so that one that was replaced does not overwrite its successor's; the schema
    version is part of the place, so that workers of two versions leave each other's alone.
    """
    return f"{topic} {partition}/{version} {slot} {piece} {key}".encode()


@dataclass(frozen=True, slots=True)
class Found:
    """The snapshots of a partition.

    Attributes
    ----------
    markers
        The partition's own, whole ones, the one that covers most first.
    keys
        By key, its whole snapshots and what each covers, the one that covers most first.
    records
        The keys of all records.
    foreign
        By key, the records of other schema versions, and what each covers. Who rolls back needs them, until what
        follows them in the log has expired.
    names_elsewhere
        Keys of which these have a snapshot.

    """

    markers: tuple[bytes, ...]
    keys: Mapping[str, tuple[tuple[int, bytes], ...]]
    records: tuple[bytes, ...]
    foreign: Mapping[bytes, int] = field(default_factory=dict)
    names_elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A record of the compacted topic: a piece of the snapshot of a key."""

    slot: str
    key: str
    index: int
    covered: int
    n_pieces: int
    body: bytes


@dataclass(slots=True)
class SnapshotReader:
    """Puts snapshots together from the records of the compacted topic, in their order.

    Attributes
    ----------
    strangers
        Records that are no part of any snapshot.

    Examples
    --------
    >>> reader = SnapshotReader()
    >>> reader.add(record_key("calls", 3, 1, "1.0", 0, "c"), b"7 1 state")
    >>> reader.of("calls", 3, 1).keys
    {'c': ((7, b'state'),)}

    """

    strangers: int = 0
    _records: dict[tuple[str, int, str], dict[bytes, _Piece]] = field(default_factory=dict)
    """By partition and schema version, and by key."""

    def add(self, key: bytes, value: bytes | None) -> None:
        """The next record."""
        try:
            topic, where, slot, piece, name = key.decode().split(" ", 4)
            number, _, version = where.partition("/")  # before there were versions, there was none
            place, index = (topic, int(number), version), int(piece)
            covered, n_pieces, body = value.split(b" ", 2) if value else (b"0", b"1", b"")
            part = _Piece(slot, name, index, int(covered), int(n_pieces), body)
        except ValueError:
            self.strangers += 1
            return
        records = self._records.setdefault(place, {})
        if not value:
            records.pop(key, None)
            return
        records[key] = part

    def of(self, topic: str, partition: int, version: int) -> Found:
        """The snapshots of a partition that are whole."""
        records = self._records.get((topic, partition, str(version)), {})
        others = [
            (key, piece)
            for (of_topic, number, other), pieces in self._records.items()
            if (of_topic, number) == (topic, partition) and other != str(version)
            for key, piece in pieces.items()
        ]
        snapshots: dict[tuple[str, str], dict[int, _Piece]] = {}
        for piece in records.values():
            snapshots.setdefault((piece.slot, piece.key), {})[piece.index] = piece
        markers: list[tuple[int, bytes]] = []
        keys: dict[str, list[tuple[int, bytes]]] = {}
        for (_, name), pieces in snapshots.items():
            if 0 not in pieces:
                continue
            covered, n_pieces = pieces[0].covered, pieces[0].n_pieces
            if not 1 <= n_pieces <= len(pieces):
                continue
            whole = [pieces[at] for at in range(n_pieces) if at in pieces]
            bodies = [piece.body for piece in whole if (piece.covered, piece.n_pieces) == (covered, n_pieces)]
            if len(bodies) < n_pieces:
                continue
            found = markers if name == MARKER else keys.setdefault(name, [])
            found.append((covered, b"".join(bodies)))
        # Of two that cover the same the one whose key was written later counts.
        return Found(
            tuple(body for _, body in sorted(markers, key=lambda marker: -marker[0])),
            {key: tuple(sorted(bodies, key=lambda body: body[0])[::-1]) for key, bodies in keys.items()},
            tuple(records),
            foreign={key: piece.covered for key, piece in others},
            names_elsewhere=frozenset(piece.key for _, piece in others if piece.key != MARKER),
        )
