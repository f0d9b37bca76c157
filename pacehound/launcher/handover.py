"""What `pacehound run` hands to its helpers: by an open file in memory, for everybody can read a command line.

The same file is read again by a helper that is started again; no disk has ever seen it.
"""

from __future__ import annotations

import os

import msgspec

from pacehound.bus.tls import MACHINE_CAS, Trust
from pacehound.errors import InvalidInput
from pacehound.model.json_documents import UNREADABLE_JSON


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a helper needs and others need not see.

    Attributes
    ----------
    overrides
        All settings that differ from the defaults, as `key=value`.
    endpoint, headers, trust
        The receiver by its name (pacehound/runtime/unsent.py), what it must be shown, and by which certificate it is
        known.

    """

    overrides: tuple[str, ...] = ()
    endpoint: str = ""
    headers: dict[str, str] = {}
    trust: Trust = MACHINE_CAS


def hand_over(handover: Handover) -> int:
    """A descriptor to be inherited by the helper, and by nobody else."""
    descriptor = os.memfd_create("pacehound-handover", os.MFD_CLOEXEC)
    os.write(descriptor, msgspec.json.encode(handover))
    return descriptor


def take_over(descriptor: int | None) -> Handover:
    """What stands in it; nothing, where somebody started a head by hand.

    Raises
    ------
    InvalidInput
        It is no such descriptor.

    """
    if descriptor is None:
        return Handover()
    try:
        return msgspec.json.decode(os.pread(descriptor, os.fstat(descriptor).st_size, 0), type=Handover)
    except (OSError, *UNREADABLE_JSON) as error:
        raise InvalidInput(f"nothing was handed over by descriptor {descriptor}: {error}") from error
