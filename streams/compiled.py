"""How the inner loops are compiled: by Numba, once per version of their sources, kept in the user's cache.

Numba looks only at a function's own file to tell whether what it kept is stale; the functions that it calls may stand
in another. The folder is therefore named by the sources of all of them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numba

_SOURCES = sorted(Path(__file__).parent.glob("*.py"))


def _cache_folder() -> Path:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "pacehound" / f"compiled-{digest}"


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]

compiled = numba.njit(cache=True, error_model="numpy")
"""Decorates a function of arrays and numbers; it is compiled at its first call (seconds), later runs load it.

Division is NumPy's: by zero it gives infinity, not an exception. Loops with a check at every division stay scalar.
"""

compiled_reordered = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nnan", "nsz"})
"""For sums, counts and extremes of finite values: in whatever order is quickest, several at once."""
