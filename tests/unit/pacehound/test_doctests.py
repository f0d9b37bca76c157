"""The examples in the docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = [
    f"{folder}.{path.stem}".replace("/", ".")
    for folder in (
        "pacehound",
        "pacehound/bus",
        "pacehound/analysis",
        "simulator",
        "collector",
        "collector/evidence",
        "collector/importers/step_logs",
        "collector/vitals",
        "streams",
    )
    for path in sorted((ROOT / folder).glob("*.py"))
    if path.stem != "__init__" and ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
