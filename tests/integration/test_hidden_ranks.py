"""Ranks whose script hides what `pacehound run` has set: seen where Pacehound is installed, else it is said why not."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from pacehound.instrument.launch import AUTOLOAD, PTH

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("made_store"),
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]

SCRIPT = Path(__file__).with_name("begun_ranks.py")


def with_pacehound_installed(folder: Path) -> Path:
    """An interpreter that has torch, and beside its packages what an installed Pacehound puts there."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / PTH).write_bytes((AUTOLOAD / PTH).read_bytes())
    return folder / "bin" / "python"


def test_ranks_of_a_script_that_sets_pythonpath_are_seen(tmp_path: Path) -> None:
    python = with_pacehound_installed(tmp_path / "env")
    command = ["bash", "-c", f"export PYTHONPATH={tmp_path}; exec {python} {SCRIPT} 30 0 0"]
    run = realjob.start(tmp_path, command)
    try:
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    assert "no incident in what was seen: 60 calls of 2 ranks on this host" in run.text()


@pytest.mark.parametrize(
    ("hiding", "why"),
    [
        (["env", "-i", f"PATH={os.environ['PATH']}"], "was begun without the variables that `pacehound run` sets"),
        (["env", "PYTHONPATH=src"], "has another PYTHONPATH than `pacehound run` has set"),
    ],
    ids=["cleared", "replaced"],
)
def test_of_ranks_that_cannot_be_seen_it_is_said_why(tmp_path: Path, hiding: list[str], why: str) -> None:
    # For longer than until the first look: torch is imported by then, on a busy machine too.
    run = realjob.start(tmp_path, [*hiding, sys.executable, str(SCRIPT), "30", "0", "20"])
    try:
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    (line,) = [line for line in run.text().splitlines() if "not watched: " in line]
    assert "not watched: process " in line
    assert "begun_ranks.py 30 0 20) " in line
    assert why in line
