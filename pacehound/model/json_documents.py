"""JSON that somebody else has written, or that a crash has cut: what reading it can raise."""

from __future__ import annotations

import msgspec

UNREADABLE_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Text that is no UTF-8 and brackets within brackets come as errors that are not msgspec's own."""
