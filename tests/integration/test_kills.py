"""Whoever is killed while ranks are held, measured or ordered: the job goes on, nobody stays held, no rank differs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.kills import kills, page, run
from bench.rig.kills.strikes import STEPS
from pacehound.instrument import shim

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
ROUNDS = 2


def test_a_hundred_kills_at_every_step_of_every_protocol(tmp_path: Path) -> None:
    """As `python -m bench.kills` does it."""
    planned = [one for seed in range(ROUNDS) for one in kills(seed)]
    assert len(planned) >= 100
    assert {(one.protocol, one.step) for one in planned} == {(p, s) for p, steps in STEPS.items() for s in steps}
    struck = run(tmp_path, ROUNDS, print)
    print(page(struck, 0.0))
    assert len(struck) == len(planned)
    assert [one for one in struck if one.wrong] == []
