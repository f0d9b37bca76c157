"""A number of an event: JSON has no largest one, and what passes it on has.

>>> msgspec.json.decode(b"9223372036854775807", type=Int64)
9223372036854775807
>>> msgspec.json.decode(b"9223372036854775808", type=Int64)
Traceback (most recent call last):
msgspec.ValidationError: Expected `int` <= 9223372036854775807
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Of 64 bits; a message with another one is refused (`MalformedMessage`) where it is read."""
