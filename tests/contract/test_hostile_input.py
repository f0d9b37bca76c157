"""Whatever comes in at a door is taken or refused for a reason, and what is good beside it comes through.

The long form gives the doors a million inputs, and looks at the memory that they leave behind.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile.doors import DOORS, TAKEN
from tests.hostile.readers import READERS

LONG = [pytest.mark.prove, pytest.mark.timeout(7200)]
INPUTS = {
    "messages": 500_000,
    "snapshots": 50_000,
    "rings": 50_000,
    "frames": 300_000,
    "control blocks": 100_000,
    "outboxes": 20_000,
    "call files": 80_000,
    "operators": 20_000,
} | dict.fromkeys(READERS.keys() - {"operators"}, 100_000)
ALL = DOORS | READERS
SHORT_SHARE = 1_000
"""Of the inputs of the long form: 20 to 500 a door, which show whether the damage reaches what is checked, and how it
is refused. The rare input is searched for by the long form."""
MOST_GROWTH_MIB = 64


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


def _counts(name: str, n_inputs: int, seed: int) -> Counter[str]:
    door, rng = ALL[name](), random.Random(seed)
    found: Counter[str] = Counter()
    settled_mib = 0.0
    for number in range(n_inputs):
        if number == n_inputs // 10:
            settled_mib = _resident_mib()
        given = door.damaged(rng)
        try:
            found += door.take(given)
        except Exception as error:
            error.add_note(f"input {number} of {name}, seed {seed}: {given[:2000]!r}")
            raise
    door.check()
    grown_mib = _resident_mib() - settled_mib
    print(f"{name}: {n_inputs} inputs, {dict(found)}, {grown_mib:+.0f} MiB since the first tenth")
    assert grown_mib < MOST_GROWTH_MIB
    return found


@pytest.mark.parametrize("name", ALL)
def test_damaged_input_is_taken_or_refused_for_a_reason(name: str) -> None:
    found = _counts(name, INPUTS[name] // SHORT_SHARE, seed=1)
    assert found.total() == INPUTS[name] // SHORT_SHARE
    if name in DOORS:
        assert 0 < found[TAKEN] < found.total(), "the damage does not reach what is checked"


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG) for name in ALL])
def test_a_million_damaged_inputs_are_taken_or_refused_for_a_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps all that is logged
    _counts(name, INPUTS[name], seed=2)
