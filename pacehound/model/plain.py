"""Text that others have written, shown as text.

A terminal obeys what it is sent. A job's name, a stack or a kernel's line may hold what moves the cursor, sets the
title or turns the direction of writing.
"""

from __future__ import annotations

import re

_NO_TEXT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # what a terminal obeys, but for tabs and ends of lines
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # directions of writing, other ends of lines
    "\ud800-\udfff]"  # halves of characters, which cannot be written at all
)


def plain(text: str) -> str:
    r"""The same, with what is no text escaped; ends of lines stay.

    >>> plain("rank 3 on \x1b[31mnode7\x07: café\n")
    'rank 3 on \\x1b[31mnode7\\x07: café\n'
    """
    return _NO_TEXT.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
