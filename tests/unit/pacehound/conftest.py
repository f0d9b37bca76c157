import sys
from pathlib import Path

from hypothesis import settings

# The same examples in every run: a failure must be reproducible, and a green run must not depend on luck.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fakes"))
