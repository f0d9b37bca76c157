"""What `pacehound validate` says of what it has measured."""

from __future__ import annotations

from pacehound.cli.validate import lines


def test_ranks_that_cannot_be_judged_are_not_called_slower_than_their_peers() -> None:
    ranks = [
        {"rank": 0, "host": "a", "test": "gemm", "verdict": "unclear", "reason": "1 peers were measured"},
        {"rank": 1, "host": "a", "test": "gemm", "verdict": "cleared", "reason": ""},
    ]
    outcome = {"culprits": [], "ranks": ranks, "links": [], "held_s": 2.0, "cut_short": False}
    assert lines(outcome) == [
        "cannot be told: rank 0 on a, gemm: 1 peers were measured",
        "1 of 2 ranks are as fast as their peers; of 1 that cannot be told; the job was held for 2.0 s",
    ]
    ranks[0]["verdict"] = "cleared"
    assert lines(outcome) == ["2 of 2 ranks are as fast as their peers; the job was held for 2.0 s"]
