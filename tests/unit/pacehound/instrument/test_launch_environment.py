"""The environment of an instrumented command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pacehound.instrument.launch import AUTOLOAD, environment


def test_our_folder_is_first_and_what_was_there_stays() -> None:
    found = environment(Path("/run/x"), "job", {"PYTHONPATH": "lib:other", "A": "b"})
    assert found == {
        "PYTHONPATH": f"{AUTOLOAD}:lib:other",
        "A": "b",
        "PACEHOUND_AUTOLOAD": str(AUTOLOAD / "sitecustomize.py"),
        "PACEHOUND_RUN_DIR": "/run/x",
        "PACEHOUND_JOB": "job",
        "PACEHOUND_ATTEMPT": "0",
        "PACEHOUND_LAUNCHER": str(os.getpid()),
    }


def test_the_attempt_of_this_run_replaces_that_of_a_run_around_it() -> None:
    assert environment(Path("/run/x"), "job", {"PACEHOUND_ATTEMPT": "9"}, 2)["PACEHOUND_ATTEMPT"] == "2"


def test_an_unset_or_empty_pythonpath_adds_no_working_directory() -> None:
    for base in ({}, {"PYTHONPATH": ""}):
        assert environment(Path("/run/x"), "job", base)["PYTHONPATH"] == str(AUTOLOAD)


def test_applied_twice_it_is_applied_once() -> None:
    once = environment(Path("/run/x"), "job", {"PYTHONPATH": "lib"})
    assert environment(Path("/run/x"), "job", once) == once


def test_the_folder_holds_the_sitecustomize_that_loads_us() -> None:
    assert (AUTOLOAD / "sitecustomize.py").is_file()


def test_what_runs_in_a_training_process_imports_nothing_but_the_standard_library() -> None:
    modules = [
        "torch_c10d", "torch_calls", "torch_waits", "torch_markers", "exits", "native_hooks", "build", "launch",
        "bootstrap", "joining",
    ]  # fmt: skip
    code = (
        "import sys; before = set(sys.modules)\n"
        + "\n".join(f"import pacehound.instrument.{name}" for name in modules)
        + "\nforeign = {n.partition('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names)"
        + "\nassert foreign == {'pacehound'}, foreign"
    )
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=30, env={"PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
