"""The way from a controller to the agents of a job: what carries signed orders there, and answers back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
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
    """A head's own: it hears everything."""
