"""Evidence is kinds and numbers: it survives the bus, old and foreign forms are read, and nobody goes by sentences."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.codec import decode, encode
from pacehound.model.events import Finding
from pacehound.model.evidence import KINDS, Evidence, OnlyWords, merged, read_json
from pacehound.model.evidence.levels import Level
from pacehound.model.evidence.machines import MOST_FRAMES, LacksProcessor, Stack
from pacehound.model.evidence.piece import MOST_RANKS
from pacehound.model.evidence.waiting import MovedOn
from tests.fakes.event_strategies import pieces_of
from tests.fakes.events import finding
from tests.fakes.examples import examples

STREAMS = Path(__file__).parents[4] / "streams"
ONE_BEFORE = Level(before_s=0.1, after_s=0.2, since_step=7)


@pytest.mark.parametrize("module", sorted({kind.__module__.split(".")[-1] for kind in KINDS}))
@examples(5, deep=400)
@given(data=st.data())
def test_each_kind_survives_the_bus_and_has_words(module: str, data: st.DataObject) -> None:
    kinds = [kind for kind in KINDS if kind.__module__.split(".")[-1] == module]
    pieces = tuple(data.draw(pieces_of(kind)) for kind in kinds)
    (read,) = decode(encode(finding(evidence=pieces)))
    assert read.evidence == pieces
    assert [piece.key for piece in read.evidence] == [piece.key for piece in pieces]
    for kind, piece in zip(kinds, pieces, strict=True):
        assert piece.words or kind is OnlyWords or "not_judged" in str(kind._sentence.__code__.co_names), kind


def test_kinds_and_their_names_differ() -> None:
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(tags)) == len({kind.__name__ for kind in KINDS}) == len(KINDS)


@given(
    words=st.text(max_size=20),
    fields=st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.lists(st.text(max_size=3), max_size=2)),
)
def test_of_a_kind_that_is_not_known_the_words_are_kept(words: str, fields: dict[str, object]) -> None:
    body = json.dumps([{**fields, "kind": "of the future", "words": words}, words])
    assert read_json(body, tuple[Evidence, ...]) == (OnlyWords(words=words), OnlyWords(words=words))


def test_a_finding_of_a_version_before_is_read_as_it_was_written() -> None:
    old = json.loads(msgspec.json.encode(finding()))
    old["evidence"] = ["rank 2 is late in 12 of 12 iterations", "on the critical path"]
    read = read_json(json.dumps(old), Finding)
    assert [piece.words for piece in read.evidence] == old["evidence"]


def test_a_known_kind_with_fields_that_are_not_known_here_keeps_its_words() -> None:
    other = '[{"kind": "level", "before_s": 0.1, "after_ms": 200, "words": "as they said it"}]'
    assert read_json(other, tuple[Evidence, ...]) == (OnlyWords(words="as they said it"),)


def test_the_sentence_is_that_of_the_numbers_whatever_was_sent() -> None:
    sent = json.loads(msgspec.json.encode(ONE_BEFORE)) | {"words": "all is well", "of_the_future": 1}
    assert read_json(json.dumps([sent]), tuple[Evidence, ...]) == (ONE_BEFORE,)


@pytest.mark.parametrize("wrong", ['[{"kind": "level"}]', "[7]", '[{"kind": "x", "words": 7}]', "[null]"])
def test_evidence_without_words_is_refused(wrong: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_json(wrong, tuple[Evidence, ...])


def test_a_reader_that_knows_no_kinds_finds_kind_numbers_and_words() -> None:
    assert json.loads(msgspec.json.encode(ONE_BEFORE)) == {
        "kind": "level", "before_s": 0.1, "after_s": 0.2, "since_step": 7, "trend": "", "runs": [],
        "words": "steps take 200.0 ms since step 7, 100.0 ms before (+100.0%)",
    }  # fmt: skip


def test_newer_numbers_take_the_place_of_older_ones_about_the_same() -> None:
    newer = Level(before_s=0.1, after_s=0.3, since_step=7)
    other = Level(before_s=0.1, after_s=0.3, since_step=90)
    assert merged((ONE_BEFORE, OnlyWords(words="a")), (other, newer)) == (newer, OnlyWords(words="a"), other)
    told = finding(evidence=(ONE_BEFORE,)).next_version(newer)
    assert told.evidence == (newer,)


def test_what_a_hypervisor_takes_is_one_piece_for_all_ranks_of_a_host() -> None:
    stolen = [LacksProcessor(rank=rank, host="a", cause="hypervisor", now=0.3, before=0.0) for rank in range(4)]
    waits = [LacksProcessor(rank=rank, host="a", cause="other work", now=0.3, before=1.0) for rank in range(4)]
    assert (len(merged((), stolen)), len(merged((), waits))) == (1, 4)


def test_a_piece_stays_small_and_counts_what_it_does_not_list() -> None:
    moved = MovedOn(ranks=tuple(range(4096)), after_s=1.0)
    assert (moved.ranks, moved.n_ranks) == (tuple(range(MOST_RANKS)), 4096)
    assert moved.words == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4088 more moved on after 1.0 s"
    frames = tuple(f"f{number}" for number in range(100))
    stack = Stack(rank=0, doing="computing", taken_by="py-spy", frames=frames, shown_as="named")
    assert stack.frames == frames[:MOST_FRAMES]


def test_no_stream_reads_what_evidence_says() -> None:
    """What is new is found by keys: a module that asked for words would go by sentences again."""
    asked = [
        f"{path}:{node.lineno}"
        for path in sorted(set(STREAMS.rglob("*.py")) - set(STREAMS.glob("scoring/*")))  # a truth's words are others
        if re.search(r"\b(words|_sentence)\b", text := path.read_text(encoding="utf-8"))  # to parse all takes long
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("words", "_sentence")
    ]
    assert asked == []


def test_streams_say_by_kind_and_never_by_a_bare_sentence() -> None:
    """`OnlyWords` is for what others wrote."""
    named = [
        str(path)
        for path in sorted(STREAMS.rglob("*.py"))
        if "evidence import OnlyWords" in path.read_text(encoding="utf-8")
    ]
    assert named == []
