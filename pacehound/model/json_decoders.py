"""Readers of JSON by what they make of it: each is made once, and by one thread at a time.

msgspec (0.22) looks at a class when it is first asked to read one, and notes what it has found before it has found all
of it. A second thread that asks for the same class meanwhile reads what is not there yet, which ends the process. Once
there is a decoder nothing is looked at any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

_making = threading.Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder_of(kind: Any, dec_hook: Callable[[type, Any], Any] | None = None) -> msgspec.json.Decoder[Any]:
    """The one that reads `kind`; `dec_hook` is the same whenever it is asked for.

    >>> decoder_of(tuple[int, ...]).decode("[1, 2]"), decoder_of(tuple[int, ...]) is decoder_of(tuple[int, ...])
    ((1, 2), True)
    """
    decoder = _made.get(kind)
    if decoder is None:
        with _making:
            decoder = _made.get(kind)
            if decoder is None:
                decoder = _made[kind] = msgspec.json.Decoder(kind, dec_hook=dec_hook)
    return decoder
