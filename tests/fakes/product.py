"""The product with stand-ins for its siblings, as a folder of its own to start real processes from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def make_product(folder: Path) -> Path:
    """Copy `pacehound` beside the stand-ins; returns the folder.

    Its runs have their folders in `shared_memory` of it: no run of another product of this machine sweeps them.
    """
    shutil.copytree(ROOT / "pacehound", folder / "pacehound", ignore=shutil.ignore_patterns("__pycache__", "built"))
    shutil.copytree(HERE / "siblings", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "launch_stand_in.py", folder / "pacehound" / "instrument" / "launch.py")
    run_dir = folder / "pacehound" / "launcher" / "run_dir.py"
    there, here = 'SHARED_MEMORY = Path("/dev/shm")', f'SHARED_MEMORY = Path("{folder}/shared_memory")'
    before = run_dir.read_text()
    assert there in before
    run_dir.write_text(before.replace(there, here))
    (folder / "shared_memory").mkdir()
    return folder


class Product:
    """Starts commands of a product folder, each with its own home."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home
        self.store = home / "pacehound"  # the default, as XDG_DATA_HOME is set below
        inherited = ("PATH", "LANG", "HOME")
        self.environ = {name: os.environ[name] for name in inherited if name in os.environ}
        self.environ |= {"XDG_DATA_HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TMPDIR": str(home)}

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", str(self.root / "pacehound" / "__main__.py"), *arguments]

    def start(
        self, *arguments: str, environ: dict[str, str] | None = None, **kwargs: object
    ) -> subprocess.Popen[bytes]:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(self.argv(*arguments), env={**self.environ, **(environ or {})}, **kwargs)

    def finish(self, *arguments: str, timeout_s: float = 40.0, **kwargs: object) -> subprocess.CompletedProcess[bytes]:
        environ = kwargs.pop("environ", None) or {}
        return subprocess.run(
            self.argv(*arguments),
            env={**self.environ, **environ},
            capture_output=True,
            timeout=timeout_s,
            check=False,
            **kwargs,
        )
