"""What rounds usually take, as a setting says: `all_reduce:67108864=0.012` (CCL-D's configured T_base, 4.2.1)."""

from __future__ import annotations

import math

from pacehound.errors import InvalidSetting
from pacehound.model.calls import OP_CODE

SETTING = "slow.base_times"


def base_times(text: str) -> dict[tuple[int, int], float]:
    """Nanoseconds by operation (its code) and size in bytes.

    >>> base_times("all_reduce:1024=0.001, broadcast:8=2e-5") == {(OP_CODE["all_reduce"], 1024): 1e6,
    ...                                                           (OP_CODE["broadcast"], 8): 2e4}
    True

    Raises
    ------
    InvalidSetting
        A part is no OPERATION:BYTES=SECONDS.

    """
    times = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, seconds = part.partition("=")
        op, _, size = kind.partition(":")
        try:
            size_bytes, base_s = int(size), float(seconds)
        except ValueError:
            size_bytes, base_s = -1, math.nan
        if op not in OP_CODE or size_bytes < 0 or not 0 < base_s < math.inf:
            raise InvalidSetting(
                f"{SETTING} has {part!r}; write OPERATION:BYTES=SECONDS, separated by commas, as in "
                f"all_reduce:67108864=0.012; operations are {', '.join(op for op in OP_CODE if op)}"
            )
        times[OP_CODE[op], size_bytes] = base_s * 1e9
    return times
