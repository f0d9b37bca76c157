"""`pacehound.pth`: a watched process finds us by it where PYTHONPATH does not lead to us, and nobody else notices."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from pacehound.instrument.launch import AUTOLOAD, environment

LOADED = """
import sys
hooks = [type(finder).__name__ for finder in sys.meta_path].count("AfterImport")
print("pacehound.instrument.bootstrap" in sys.modules, hooks, sys.modules.get("sitecustomize"))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with nothing but that file beside its packages."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "pacehound.pth").write_bytes((AUTOLOAD / "pacehound.pth").read_bytes())
    return folder / "bin" / "python"


def told(python: Path, environ: dict[str, str], *flags: str) -> str:
    command = [str(python), *flags, "-c", LOADED]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def watched(**changes: str) -> dict[str, str]:
    return environment(Path("/dev/shm/nobody"), "j", {}) | changes


@pytest.mark.parametrize("flags", [("-I",), ("-E",), ("-X", "dev", "-W", "error", "-I")])
def test_it_is_loaded_once_where_pythonpath_is_ignored(python: Path, flags: tuple[str, ...]) -> None:
    assert told(python, watched(), *flags) == "True 1 None"


@pytest.mark.parametrize("theirs", ["", "src", os.pathsep.join(["src", "lib"])])
def test_it_is_loaded_once_where_a_script_has_set_pythonpath(python: Path, theirs: str) -> None:
    assert told(python, watched(PYTHONPATH=theirs)) == "True 1 None"


def test_a_script_s_own_sitecustomize_is_loaded_as_without_us(python: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("")
    assert told(python, watched(PYTHONPATH=str(tmp_path))).startswith("True 1 <module 'sitecustomize' from")


def test_where_pythonpath_leads_to_us_it_does_nothing(python: Path) -> None:
    assert told(python, watched()) == told(Path(sys.executable), watched()) == "True 1 None"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"PACEHOUND_AUTOLOAD": str(AUTOLOAD / "sitecustomize.py")},
        {"PACEHOUND_RUN_DIR": "/dev/shm/nobody", "PACEHOUND_AUTOLOAD": ""},
        {"PACEHOUND_RUN_DIR": "/dev/shm/nobody", "PACEHOUND_AUTOLOAD": "/nowhere/sitecustomize.py"},
    ],
    ids=["nobody", "no run", "empty", "gone"],
)
def test_a_process_that_nobody_watches_loads_nothing_of_ours(python: Path, environ: dict[str, str]) -> None:
    assert told(python, environ) == "False 0 None"
