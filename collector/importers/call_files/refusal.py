"""Why a file is not read."""

from __future__ import annotations

from pacehound.errors import InvalidInput


class RefusedFile(InvalidInput):
    """A file of which nothing is used; the message says what is wrong with it and where."""
