"""The examples in the docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = [
    path.relative_to(ROOT).as_posix().removesuffix(".py").replace("/", ".")
    for package in ("pacehound", "collector", "streams", "storage", "alerts", "actuators", "simulator", "bench")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.stem != "__init__" and ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
