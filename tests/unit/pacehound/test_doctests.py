"""The examples in the docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("pacehound", "collector", "streams", "storage", "alerts", "actuators", "simulator", "bench")


def names_of_modules(package):
    return [
        path.relative_to(ROOT).as_posix().removesuffix(".py").replace("/", ".")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.stem != "__init__" and ">>>" in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_examples_of_each_module_run(package):
    results = {name: doctest.testmod(importlib.import_module(name)) for name in names_of_modules(package)}
    assert results
    assert [name for name, found in results.items() if not found.attempted] == []
    assert [name for name, found in results.items() if found.failed] == []  # what was expected stands above
