"""Where blocks end, decided once for everybody, in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from pacehound.bus import Place
from pacehound.errors import Unavailable
from storage import schemas
from storage.blocks import Span
from storage.client import Store


class BlockBoundaries:
    """The ledger of boundaries, `stored_cuts`: the first to write down an end is right.

    The insert's token has the beginning of the block and not its end, so a second decision about the same beginning is
    dropped by the table itself: compare-and-set, with nothing but an insert. What was decided is then read back.

    Parameters
    ----------
    store
        Where it is kept.
    log
        Which log the offsets belong to. Offsets start again when a topic is made anew (a new cluster, a topic that was
        deleted): another log must have another name, or its blocks are taken for those of the old one and dropped.

    """

    def __init__(self, store: Store, log: str) -> None:
        self._store = store
        self.log = log

    def decide(self, spans: Sequence[Span]) -> list[Span]:
        """For each block as proposed, the block as decided: the same beginning, perhaps another end.

        Raises
        ------
        Unavailable
            The store does not answer. Nothing may be written then; ask again.

        """
        known: dict[tuple[str, int, int], int] = {}
        undecided = list(spans)
        for again in range(2):
            for span in undecided:
                # A server that is killed at the wrong moment remembers a token and not its row; hence the second.
                token = "" if again else f"{self.log}/{span.topic}/{span.partition}/{span.first}"
                self._store.insert(schemas.CUTS, self._row(span), token=token)
            known |= self._known(undecided)
            undecided = [span for span in undecided if _place(span) not in known]
        if undecided:
            raise Unavailable(f"the store took where {undecided[0].name} ends, and does not know it")
        return [replace(span, last=known[_place(span)]) for span in spans]

    def newest(self, places: Mapping[Place, int]) -> dict[Place, int]:
        """The last offset that any writer has decided about, in each partition.

        Parameters
        ----------
        places
            Partitions, each with the offset from which on it matters.

        Returns
        -------
        For each of them an offset; -1 where nothing was decided from there on. A block that begins behind it was
        never begun by anybody.

        """
        if not places:
            return {}
        sql = f"""
            SELECT topic, `partition`, max(last) AS last FROM {schemas.CUTS}
            INNER JOIN
            (
                SELECT tupleElement(place, 1) AS topic, tupleElement(place, 2) AS `partition`,
                       tupleElement(place, 3) AS since
                FROM (SELECT arrayJoin(arrayZip(
                    {{topics:Array(String)}}, {{partitions:Array(Int32)}}, {{since:Array(Int64)}})) AS place)
            ) AS asked USING (topic, `partition`)
            WHERE log = {{log:String}} AND first >= since
            GROUP BY topic, `partition`
        """
        parameters = {
            "log": self.log,
            "topics": [topic for topic, _ in places],
            "partitions": [partition for _, partition in places],
            "since": list(places.values()),
        }
        rows = self._store.query(sql, parameters).to_pylist()
        return dict.fromkeys(places, -1) | {(row["topic"], row["partition"]): row["last"] for row in rows}

    def _known(self, spans: Sequence[Span]) -> dict[tuple[str, int, int], int]:
        if not spans:
            return {}
        sql = f"""
            SELECT topic, `partition`, first, min(last) AS last FROM {schemas.CUTS}
            WHERE log = {{log:String}} AND (topic, `partition`, first) IN
                arrayZip({{topics:Array(String)}}, {{partitions:Array(Int32)}}, {{firsts:Array(Int64)}})
            GROUP BY topic, `partition`, first
        """
        parameters = {
            "log": self.log,
            "topics": [span.topic for span in spans],
            "partitions": [span.partition for span in spans],
            "firsts": [span.first for span in spans],
        }
        rows = self._store.query(sql, parameters).to_pylist()
        return {(row["topic"], row["partition"], row["first"]): row["last"] for row in rows}

    def _row(self, span: Span) -> pa.Table:
        row = {"log": self.log, "topic": span.topic, "partition": span.partition}
        row |= {"first": span.first, "last": span.last}
        return pa.Table.from_pylist([row], schema=schemas.CUT_TABLE)


def _place(span: Span) -> tuple[str, int, int]:
    return span.topic, span.partition, span.first
