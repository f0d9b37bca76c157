"""An agent in a run folder of its own, without processes or a clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.agent_run import AgentRun


@pytest.fixture
def run(tmp_path: Path) -> AgentRun:
    return AgentRun(tmp_path)
