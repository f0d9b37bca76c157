"""How the inner loops are compiled: by Numba, once per version of their sources, kept in the user's cache.

Numba looks only at a function's own file to tell whether what it kept is stale; the functions that it calls may stand
in another. The folder is therefore named by the sources of all of them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numba

_MARK = b"streams.compiled"
"""Stands in every file whose functions are compiled: they import it from here."""


def _cache_folder() -> Path:
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py"))]
    digest = hashlib.sha256(b"".join(source for source in sources if _MARK in source)).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "pacehound" / f"compiled-{digest}"


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]

compiled = numba.njit(cache=True, error_model="numpy")
"""Decorates a function of arrays and numbers; it is compiled at its first call (seconds), later runs load it.

Division is NumPy's: by zero it gives infinity, not an exception. Loops with a check at every division stay scalar.
"""

compiled_reordered = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nnan", "nsz"})
"""For counts and extremes of finite values: in whatever order is quickest. Not for sums, whose last digits have one."""
