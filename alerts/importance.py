"""How much jobs matter, as a setting says: `pretrain-*=4,debug-*=0`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pacehound.errors import InvalidSetting

SETTING = "alerts.importance"


@dataclass(frozen=True, slots=True)
class Importance:
    """Weights by pattern of the job's name; the first that fits counts, and 1 where none does.

    >>> jobs = Importance.parse("pretrain-*=4, debug-*=0")
    >>> [jobs.of(job) for job in ("pretrain-7b", "debug-1", "eval")]
    [4.0, 0.0, 1.0]
    """

    weights: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Importance:
        """Read the setting.

        Raises
        ------
        InvalidSetting
            A part is no PATTERN=NUMBER.

        """
        weights = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            pattern, separator, number = part.rpartition("=")
            try:
                weight = float(number)
            except ValueError:
                weight = math.nan
            if not separator or not pattern or not 0 <= weight <= 1e6:
                raise InvalidSetting(
                    f"{SETTING} has {part!r}; write PATTERN=NUMBER with a number from 0 (tell nobody) to 1,000,000, "
                    "separated by commas, as in pretrain-*=4,debug-*=0"
                )
            weights.append((pattern, weight))
        return cls(tuple(weights))

    def of(self, job: str) -> float:
        """How much a job matters; 0: nobody is told of it."""
        return next((weight for pattern, weight in self.weights if fnmatchcase(job, pattern)), 1.0)
