"""Foreign pickles: plain values come out as Unpickler makes them, anything else is refused and nothing is run."""

from __future__ import annotations

import io
import os
import pickle
import struct

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from collector.importers.call_files.plain_pickle import plain_value
from collector.importers.call_files.refusal import RefusedFile
from tests.fakes.examples import examples

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=5)
        | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


@examples(10, deep=1_250, suppress_health_check=[HealthCheck.too_slow])
@given(PLAIN, st.integers(0, 5))
def test_plain_values_come_out_as_unpickler_makes_them(value, protocol):
    assert plain_value(pickle.dumps(value, protocol)) == value


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch /nowhere/to/be/seen",)


class Attribute:
    pass


def built():
    made = Attribute()
    made.a = 1
    return made


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "GLOBAL 'os system'"),
        (b"(S'true'\nios\nsystem\n.", "STRING"),
        (b"(I1\nios\nsystem\n.", "INST 'os system'"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x00.", "EXT2"),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x80\x02K\x01)R.", "REDUCE"),
        (b"\x80\x02})\x81.", "NEWOBJ"),
        (b"\x80\x02}}b.", "BUILD"),
        (b"(K\x01o.", "OBJ"),
        (b"Pelsewhere\n.", "PERSID"),
        (b"\x80\x02K\x01Q.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (pickle.dumps(RunsCode(), 0), "GLOBAL"),
        (pickle.dumps(RunsCode(), 4), "STACK_GLOBAL"),
        (pickle.dumps(built(), 2), "GLOBAL"),
        (pickle.dumps({"a": b"bytes"}, 4), "SHORT_BINBYTES"),
    ],
)
def test_what_is_more_than_data_is_refused_by_its_name(content, said, monkeypatch):
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(f"{command} was run"))
    with pytest.raises(RefusedFile, match="more than data") as refused:
        plain_value(content)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02r\xff\xff\xff\xff.",  # remembers nothing, under a number that would need gigabytes
        b"\x80\x02K\x01r\xff\xff\xff\x7f(.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",  # text that is promised and not there
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc.",
        b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",  # a number of gigabytes
        b"I" + b"9" * 100_000 + b"\n.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
        b"\x80\x02]" + b"a" * 10 + b".",
        b"(((((.",
        b"\x80\x02}(K\x01u.",  # a key without a value
        b"\x80\x02}]K\x01s.",  # a list as a key
        b"\x80\x02h\x00.",
        b"\x80\x02K\x01K\x02.",
        b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
        b"",
        b".",
        b"no pickle at all",
    ],
)
def test_pickles_that_cannot_be_are_refused(content):
    with pytest.raises(RefusedFile):
        plain_value(content)


def test_keys_of_nested_tuples_do_not_end_the_process():
    deep = b"\x80\x02}N" + b"\x85" * 200_000 + b"K\x01s."
    with pytest.raises(RefusedFile, match="a key that is a tuple"):
        plain_value(deep)


def test_nesting_costs_no_recursion():
    value = plain_value(b"\x80\x02" + b"(" * 30_000 + b"l" * 30_000 + b".")
    for _ in range(29_999):
        (value,) = value
    assert value == []


def test_a_list_may_hold_itself():
    value = []
    value.append(value)
    copy = plain_value(pickle.dumps(value))
    assert copy[0] is copy


def test_so_many_instructions_and_no_more(monkeypatch):
    monkeypatch.setattr("collector.importers.call_files.plain_pickle.MAX_INSTRUCTIONS", 100)
    with pytest.raises(RefusedFile, match="more than 100 instructions"):
        plain_value(b"\x80\x02" + b"N" * 200)


def test_every_byte_counts():
    """However a pickle of plain values is cut, it is refused: no half of a dump is taken for a whole one."""
    content = pickle.dumps({"entries": [{"a": 1, "b": "text"}, None]}, 4)
    for end in range(len(content)):
        with pytest.raises(RefusedFile):
            plain_value(content[:end])
    assert plain_value(content + b"more") == pickle.load(io.BytesIO(content))
