"""JSON documents that other tools wrote."""

from __future__ import annotations

import json
from typing import Any

from collector.importers.call_files.refusal import RefusedFile


def document(content: bytes | str) -> Any:
    """The value that a JSON document stands for.

    Raises
    ------
    RefusedFile
        It is no JSON, ends early, is nested too deeply, or has a number of thousands of digits.

    """
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise RefusedFile(f"no JSON from line {error.lineno}, column {error.colno} on: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise RefusedFile(f"no JSON: byte {error.start} is no text") from error
    except RecursionError as error:
        raise RefusedFile("the JSON is nested too deeply") from error
    except ValueError as error:
        raise RefusedFile(f"no JSON that can be read: {error}") from error
