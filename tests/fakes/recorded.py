"""Where the recordings of real jobs lie: beside the checkout, or where PACEHOUND_SHARED says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

RECORDED = Path(os.environ.get("PACEHOUND_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "data"

needs_recordings = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recordings do not lie beside this checkout")
