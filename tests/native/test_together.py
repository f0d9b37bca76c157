"""The shim and the profiler plugin in one process: each call is told of once, by who sees most of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.calls import rings
from pacehound.instrument import profiler, shim
from tests.native import plugin_jobs
from tests.native.stub_jobs import Built
from tests.native.test_real_nccl import ASK, python

ROOT = Path(__file__).resolve().parents[2]
CALLS = 12
Run = Callable[..., dict[str, Any]]

LIBRARIES = tuple(Path(path) for path in os.environ.get("NCCL_LIBRARIES", "").split(":") if path)
"""Real ones of several versions, each one of nvidia-nccl-cu12 or nvidia-nccl-cu13 (docs/nccl-profiler.md says how)."""


@pytest.fixture
def together(built: Built, shared_folder: Path) -> Run:
    plugin_jobs.skip_where_memory_is_short()
    stub = built.folder / "libnccl.so.2"

    def run(version: int = 0, nccl: Path = stub) -> dict[str, Any]:
        run_dir = shared_folder / "run"
        (shared_folder / "nccl").mkdir()
        run_dir.mkdir()
        environ = {
            **os.environ,
            "PACEHOUND_RUN_DIR": str(run_dir),
            "PACEHOUND_JOB": "j",
            "PYTHONPATH": str(ROOT),
            "STUB_NCCL_DIR": str(shared_folder / "nccl"),
            "STUB_NCCL_VERSION": str(version),
            "WORLD_SIZE": "2",
        }
        command = [sys.executable, "-m", "tests.native.together_job", str(stub), str(profiler.build()), str(nccl)]
        ranks = []
        for rank in range(2):
            both = profiler.preloaded(shim.preloaded(environ, built.shim), profiler.build())
            started = subprocess.Popen(
                [*command, str(run_dir)], env={**both, "RANK": str(rank)}, cwd=ROOT, text=True, stdout=subprocess.PIPE
            )
            ranks.append(started)
        said = [process.communicate(timeout=60)[0] for process in ranks]
        assert [process.returncode for process in ranks] == [0, 0]
        answer: dict[str, Any] = json.loads(said[1])
        return answer

    return run


def counts(answer: dict[str, Any], kind: int, writer: str) -> int:
    return Counter((one[0], one[1]) for one in answer["records"])[writer, kind]


def once(answer: dict[str, Any]) -> None:
    """Each rank of two has told of each of its calls once."""
    launched = [(one[0], one[2], one[3]) for one in answer["records"] if one[1] == rings.LAUNCH]
    by_call = Counter(seq for _, _, seq in launched)
    assert by_call == dict.fromkeys(range(CALLS), 2)
    assert len({writer for writer, _, _ in launched}) == len({handle for _, handle, _ in launched}) == 1
    assert answer["world"] == answer["told"] == CALLS


def test_where_the_plugin_sees_ends_it_tells_and_the_shim_counts_for_the_trap(together: Run) -> None:
    answer = together(23007)
    once(answer)
    assert counts(answer, rings.LAUNCH, "p") == 2 * CALLS
    assert counts(answer, rings.COMPLETE, "p") > 0
    assert not any(one[0] == "s" for one in answer["records"])


def test_where_it_sees_launches_alone_the_shim_tells_and_edges_are_of_its_communicator(together: Run) -> None:
    answer = together(23203)
    once(answer)
    assert counts(answer, rings.LAUNCH, "s") == 2 * CALLS
    assert {one[1] for one in answer["records"] if one[0] == "p"} == {rings.EDGE}
    handles = {one[2] for one in answer["records"] if one[0] == "s"}
    assert {one[2] for one in answer["records"] if one[1] == rings.EDGE} == handles


def test_where_the_plugin_refuses_the_shim_tells_of_everything(together: Run) -> None:
    answer = together(23003)
    assert answer["mask"] == 0
    once({**answer, "told": CALLS})
    assert not any(one[0] == "p" for one in answer["records"])


@pytest.mark.prove
@pytest.mark.skipif(not LIBRARIES, reason="NCCL_LIBRARIES names no libnccl.so.2")
@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_beside_a_real_nccl_each_call_is_told_of_once(together: Run, library: Path, tmp_path: Path) -> None:
    """It answers through the shim as without it, and the plugin asks it for what its version allows."""
    environ = {"PACEHOUND_RUN_DIR": str(tmp_path), "PACEHOUND_JOB": "real"}
    bare = python(ASK, str(library), "direct", preload=[], environ={})
    assert python(ASK, str(library), "preloaded", preload=[shim.build(), library], environ=environ) == bare
    answer = together(nccl=library)
    assert answer["mask"]
    once(answer)
