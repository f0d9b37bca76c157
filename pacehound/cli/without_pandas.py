"""Our own processes do without pandas, which Arrow imports with its first `pa.array` wherever it is installed.

That takes 0.35 s of processor time and 54 MB of each head, writer and worker, beside the ranks (`/proc/PID/status`
with and without), and nothing here makes a DataFrame.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Refuse pandas, as where it is not installed; whoever tries it goes on without."""
        if fullname == "pandas":
            raise ImportError("pandas is left out of Pacehound's own processes", name=fullname)
        return None


def leave_out_pandas() -> None:
    """From now on `import pandas` fails in this process; for processes of our own, never for a training process."""
    sys.meta_path.insert(0, _WithoutPandas())
