"""The NCCL shim is built where a C compiler is, and where it is not a user is told what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pacehound import cli
from pacehound.cli import doctor_checks
from pacehound.instrument import shim


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": str(tmp_path), "CC": "", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pacehound.instrument.shim"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "pacehound: the NCCL shim cannot be built: no C compiler; install gcc or clang, or name one in CC\n"
    )


def test_a_job_that_asks_for_it_does_not_start_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "build", lambda: (_ for _ in ()).throw(RuntimeError("no C compiler")))
    started = tmp_path / "started"
    command = ["run", "--nccl", "shim", "--store", str(tmp_path / "s"), "--", "touch", str(started)]
    answer = CliRunner().invoke(cli.pacehound, command)
    assert (answer.exit_code, answer.stderr) == (1, "pacehound: --nccl shim: no C compiler\n")
    assert not started.exists()


def test_doctor_says_whether_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "find", lambda: None)
    monkeypatch.setattr(shim, "compiler", lambda: None)
    check = doctor_checks.check_shim()
    assert (check.result, check.fix) == ("limited", "install gcc or clang")
    monkeypatch.setattr(shim, "compiler", lambda: "/usr/bin/cc")
    assert doctor_checks.check_shim().result == "ok"
    monkeypatch.setattr(shim, "find", lambda: Path("/cache/libpacehound_nccl.so"))
    assert "/cache/libpacehound_nccl.so" in doctor_checks.check_shim().detail


def test_it_comes_first_once_and_keeps_what_others_preload() -> None:
    library = Path("/cache/new") / shim.NAME
    once = shim.preloaded({"LD_PRELOAD": f"/a.so /cache/old/{shim.NAME}:/b.so", "A": "b"}, library)
    assert once == {"LD_PRELOAD": f"{library}:/a.so:/b.so", "A": "b"}
    assert shim.preloaded(once, library) == once
    with pytest.raises(ValueError, match="XDG_CACHE_HOME"):
        shim.preloaded({}, Path("/my cache") / shim.NAME)
