"""Where the tests must not pass for want of what they read."""

import os

import pytest

from tests.fakes.recorded import RECORDED


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="only CI must have them")
@pytest.mark.parametrize("kind", ["fr", "iter", "kineto", "whatif", "xpu_timer"])
def test_ci_has_the_recordings_of_real_jobs(kind):
    assert any((RECORDED / kind).iterdir())
