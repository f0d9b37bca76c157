"""Ids are hashes of what identifies a thing, the same ones in every version."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.identity import digest

PARTS = st.one_of(
    st.text(), st.integers(), st.none(), st.booleans(), st.lists(st.integers(), max_size=3), st.tuples(st.integers())
)


@given(st.lists(PARTS, max_size=5))
def test_an_id_is_the_hash_of_its_parts_as_json(parts: list[Any]) -> None:
    canonical = json.dumps([list(part) if isinstance(part, tuple) else part for part in parts], separators=(",", ":"))
    assert digest(*parts) == hashlib.blake2b(canonical.encode(), digest_size=16).digest()
