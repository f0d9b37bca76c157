"""What is done by itself, asked for or only recorded: by job, and by action."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from actuators.acting.consent import ActingMode
from pacehound.errors import InvalidSetting
from pacehound.settings import Mode

SETTING = "actuators.modes"


@dataclass(frozen=True, slots=True)
class Modes:
    """A mode for everything, and those that differ, the first that fits.

    >>> modes = Modes.of_settings(Mode.AUTO, "a-*:checkpoint_restart=approve, debug-*=observe")
    >>> [str(modes.of(*one)) for one in (("a-1", "checkpoint_restart"), ("a-1", "validate"), ("debug-2", "x"))]
    ['approve', 'auto', 'observe']
    """

    default: Mode = Mode.AUTO
    others: tuple[tuple[str, str, Mode], ...] = ()

    @classmethod
    def of_settings(cls, default: Mode, text: str) -> Modes:
        """As they are written.

        Raises
        ------
        InvalidSetting
            One of them is none.

        """
        others = []
        for one in filter(None, map(str.strip, text.split(","))):
            where, separator, word = one.rpartition("=")
            job, _, action = where.partition(":")
            if not separator or word not in set(Mode) or not job:
                raise InvalidSetting(
                    f"{SETTING} has {one!r}; write JOB=MODE or JOB:ACTION=MODE with observe, approve or auto, "
                    "as in pretrain-*:checkpoint_restart=approve"
                )
            others.append((job, action or "*", Mode(word)))
        return cls(default, tuple(others))

    def of(self, job: str, action: str) -> Mode:
        """Of one action about one job."""
        return next((m for j, a, m in self.others if fnmatchcase(job, j) and fnmatchcase(action, a)), self.default)

    def acting(self, job: str, action: str) -> ActingMode | None:
        """How one action about one job is done; `None` where it is only recorded.

        >>> modes = Modes(Mode.APPROVE, (("debug-*", "*", Mode.OBSERVE),))
        >>> modes.acting("a", "validate"), modes.acting("debug-1", "validate")
        ('approve', None)
        """
        match self.of(job, action):
            case Mode.APPROVE:
                return "approve"
            case Mode.AUTO:
                return "auto"
            case Mode.OBSERVE:
                return None

    @property
    def acts(self) -> bool:
        """Whether anything may be done at all."""
        return any(mode is not Mode.OBSERVE for mode in (self.default, *(mode for _, _, mode in self.others)))
