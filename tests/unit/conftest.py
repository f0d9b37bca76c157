"""As in our own processes: Arrow would load pandas to see whether a list is one of its own."""

from __future__ import annotations

from pacehound.cli.without_pandas import leave_out_pandas

leave_out_pandas()
