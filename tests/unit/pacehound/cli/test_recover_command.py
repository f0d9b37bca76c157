"""`pacehound recover`: a table with prices and a reason, JSON as DESIGN has it, and clear refusals."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner, Result

from pacehound import cli

JOB = ("--nodes", "16", "--failed", "3", "--model", "llama2-7b", "--dp", "4", "--pp", "4", "--device", "910b")


def recover(*args: str) -> Result:
    return CliRunner().invoke(cli.pacehound, ["recover", *args])


def test_the_page_compares_plans_with_their_prices_and_says_why() -> None:
    page = recover(*JOB, "--sequence", "2048", "--past-failures", "4", "--watched-hours", "100")
    assert page.exit_code == 0
    assert "failures: 4 in 100 h of 16 nodes" in page.stdout
    assert "reroute" in page.stdout
    assert "of before" in page.stdout
    assert "gives most until the next failure" in " ".join(page.stdout.split())
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert not any(line.endswith(" ") for line in page.stdout.splitlines())


def test_the_answer_for_a_script_has_what_the_contract_says() -> None:
    answer = json.loads(recover(*JOB, "--sequence", "2048", "--json").stdout)
    assert answer["schema"] == 1
    best = answer["plans"][answer["chosen"]]
    assert {"kind", "dp", "pp", "throughput", "downtime_s", "score", "stages", "batches"} <= set(best)
    assert best["score"] == max(plan["score"] for plan in answer["plans"])
    for plan in answer["plans"]:
        assert {sum(stages) for stages in plan["stages"]} == {32}
        assert sum(plan["batches"]) == 64
        assert 3 not in [node for nodes in plan["holders"] for node in nodes]
    assert "Llama 3's training is assumed" in answer["history"]


def test_no_plan_is_an_answer_too() -> None:
    described = ("--model", "layers=32,forward_ms=8,parameter_mb=400")
    lost = recover("--nodes", "4", "--failed", "0,1", "--dp", "2", *described, "--json")
    assert lost.exit_code == 0
    assert json.loads(lost.stdout)["chosen"] is None
    kept = recover("--nodes", "4", "--failed", "0,1", "--dp", "2", *described, "--checkpoint-age", "10")
    assert kept.exit_code == 0
    assert "11 min down" in kept.stdout


def test_rerouting_is_chosen_where_a_restart_takes_longer_than_there_is_time() -> None:
    shown = recover(*JOB, "--sequence", "2048", "--restart", "600", "--past-failures", "40", "--watched-hours", "2")
    assert "the peers of 1 lost place take the micro-batches" in shown.stdout


def test_nodes_that_come_are_part_of_the_plan() -> None:
    answer = json.loads(recover(*JOB, "--sequence", "2048", "--joined", "20-22", "--json").stdout)
    assert {20, 21, 22} & {node for nodes in answer["plans"][0]["holders"] for node in nodes}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--failed", "99"), "node 99 is none of the 16 nodes"),
        (("--failed", "3-x"), "write numbers of nodes, as in 3,17 or 8-15"),
        (("--failed", "9-8"), "the second number is the larger one"),
        (("--failed", "3,3"), "names node 3 twice"),
        (("--joined", "2"), "node 2 belongs to the job already"),
        (("--model", "lama2-7b"), "did you mean llama2-7b"),
        (("--model", "layers=4,forward=3"), "did you mean forward_ms"),
        (("--model", "layers=4,forward_ms=x"), "forward_ms='x'; give a number"),
        (("--model", "layers=4"), "lacks forward_ms, parameter_mb"),
        (("--model", "layers=4.5,forward_ms=1,parameter_mb=1"), "give a whole number"),
        (("--model", "layers=4,forward_ms=-1,parameter_mb=1"), "forward_s=-0.001"),
        (("--dp", "3"), "--dp 3 does not divide 16 nodes"),
        (("--dp", "8"), "--dp 8 x --pp 4 are 32 nodes, not 16"),
        (("--device", "h900"), "'h900' is not known"),
        (("--memory-gib", "1"), "fits into 1 GiB"),
        (("--past-failures", "3"), "needs --watched-hours"),
        (("--past-failures", "0", "--watched-hours", "3"), "less than the 1 nodes of --failed"),
    ],
)
def test_what_cannot_be_is_refused_with_the_value_and_what_to_do(args: tuple[str, ...], said: str) -> None:
    refused = recover(*JOB, *args)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    failed = recover(*JOB, "--sequence", "2048")
    assert failed.exit_code == 1
    assert "pip install 'pacehound[recovery]'" in failed.stderr
