"""What holds for all tests.

The same Hypothesis examples in every run: a failure is reproducible, and a green run does not depend on luck. With
HYPOTHESIS_PROFILE=deep there are many more, drawn anew. And what their runs could not send is none of the state of
whoever runs them.
"""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Generator

import pytest

from tests.fakes.examples import load_profile

load_profile()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: whoever walks over it looking for garbage frees nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


pytest.register_assert_rewrite("tests.contract.bus_contract")

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="pacehound-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
