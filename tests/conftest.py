"""The same Hypothesis examples in every run: a failure is reproducible, and a green run does not depend on luck."""

import pytest
from hypothesis import settings

settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")

pytest.register_assert_rewrite("tests.contract.bus_contract")
