"""Loads the native hooks into a training process, where a build of them lies."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from pacehound.instrument import build


def load(environ: Mapping[str, str]) -> Any:
    """The native module, or None where there is no build of it, it does not load, or PACEHOUND_NATIVE is 0."""
    if environ.get("PACEHOUND_NATIVE", "1") == "0":
        return None
    try:
        built = build.find()
        if built is None:
            return None
        spec = importlib.util.spec_from_file_location(build.NAME, built)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except Exception:  # the Python hooks do the same, more slowly
        return None
