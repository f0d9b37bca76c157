"""A user's folder may hold modules of our names, and a job may end as it likes; neither notices us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rig import realjob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


# One write per line: what two ranks print must not run into each other.
SHADOWED = """
import collector, os, storage, streams
words = ("collector", collector.WHOSE, "storage", storage.WHOSE, "streams", streams.WHOSE, "site", os.environ["SITE"])
os.write(1, (" ".join(words) + chr(10)).encode())
"""


@pytest.mark.prove
def test_a_script_beside_modules_of_our_names_runs_as_without_us(tmp_path: Path) -> None:
    """collector.py, storage/, streams/ and sitecustomize.py of the user come first, with and without Pacehound."""
    folder = tmp_path / "theirs"
    for package in ("storage", "streams"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text('WHOSE = "theirs"\n')
    (folder / "collector.py").write_text('WHOSE = "theirs"\n')
    (folder / "sitecustomize.py").write_text('import os\nos.environ["SITE"] = "theirs"\n')
    training = realjob.SCRIPT.read_text()
    (folder / "train_ddp.py").write_text(training + SHADOWED)
    command = [*realjob.TORCHRUN, "--standalone", "--nproc-per-node", "2", "train_ddp.py", "--iterations", "40"]
    env = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    run = realjob.start(tmp_path, command, cwd=folder, env=env)
    assert run.wait(120) == 0, run.text()
    alone = subprocess.run(
        command, cwd=folder, env=realjob.environment(env), capture_output=True, text=True, timeout=120, check=False
    )
    said = "collector theirs storage theirs streams theirs site theirs"
    for text in (run.text(), alone.stdout):
        assert text.count(said) == 2, text
    (row,) = run.sql("SELECT count() AS seen FROM iterations")
    assert int(row["seen"]) == 40  # and it was watched


def test_the_job_exits_as_it_would_without_us(tmp_path: Path) -> None:
    run = realjob.start(tmp_path, [sys.executable, "-c", "import sys; sys.exit(7)"])
    assert run.wait(60) == 7
