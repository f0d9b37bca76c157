"""Ids are hashes of what JSON would say of their parts: other producers, and versions from before, compute the same."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.identity import digest

PARTS = st.lists(st.text(max_size=6) | st.integers() | st.none() | st.lists(st.integers(), max_size=3), max_size=6)


@given(PARTS)
def test_a_digest_is_that_of_compact_json_in_ascii(parts):
    said = json.dumps(parts, separators=(",", ":"), ensure_ascii=True)
    assert digest(*parts) == hashlib.blake2b(said.encode(), digest_size=16).digest()
    assert digest(*(tuple(part) if isinstance(part, list) else part for part in parts)) == digest(*parts)


def test_what_must_not_take_part_is_refused():
    with pytest.raises(TypeError, match=r"a float \(0\.1\) must not take part"):
        digest("finding", 0.1)
