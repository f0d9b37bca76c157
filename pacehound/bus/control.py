"""The way from a controller to the agents of a job: what carries signed orders there, and answers back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from pacehound.model.events import Command, CommandResult


class ControlWire(Protocol):
    """Of a head's process, of a head's socket, or of Kafka (`KafkaControl`)."""

    def command(self, command: Command) -> None:
        """Hand a signed order over; `Unavailable` where nothing takes it."""
        ...

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What agents have answered since the last time, and the number to ask for next."""
        ...


class AttendedWire(ControlWire, Protocol):
    """The same, where it is heard what others have ordered: what people say to decisions that wait is among it."""

    def given(self, job: str, after: int) -> tuple[list[Command], int]:
        """Orders that were given about a job since the last time, and the number to ask for next."""
        ...


class AskedWire(ControlWire, Protocol):
    """To the agents of any job, where it is heard what their ranks ask."""

    def questions(self, after: int) -> tuple[list[CommandResult], int]:
        """Answers of agents that hold a question, since the last time, and the number to ask for next."""
        ...


class HeadWire(AttendedWire, AskedWire, Protocol):
    """A head's own: it hears everything, and knows what was."""

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's own named queries; what waits to be stored is stored first."""
        ...
