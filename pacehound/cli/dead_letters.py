"""`pacehound dead-letters`: what could not be processed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import json_option, print_json, say, set_option, store_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings

if TYPE_CHECKING:
    from pacehound.model.events import DeadLetter


@click.group(name="dead-letters")
def dead_letters() -> None:
    """See what could not be processed, and try it again.

    The letters are read from Kafka where kafka.servers is set, else from the store.
    """


@dead_letters.command(name="list")
@click.option("--topic", help="Only those of this topic.")
@store_option
@set_option
@json_option
def list_letters(topic: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """List them, the oldest first."""
    from pacehound.cli.dead_letters_page import print_dead_letters
    from pacehound.clock import SystemClock
    from pacehound.pages.terminal import terminal
    from pacehound.runtime.dead_letter_queue import dead_letters_answer, summaries

    with dead_letters_of(Settings.load(os.environ, overrides), store) as letters:
        found = [one for one in summaries(letters()) if topic in (None, one.source_topic)]
    if as_json:
        print_json(dead_letters_answer(found))
    else:
        print_dead_letters(terminal(sys.stdout), found, SystemClock().now_ns())


@dead_letters.command(name="show")
@click.argument("letter_id", metavar="ID")
@store_option
@set_option
@json_option
def show_letter(letter_id: str, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show everything about one; the beginning of its id is enough."""
    from pacehound.cli.dead_letters_page import print_dead_letter
    from pacehound.pages.terminal import terminal
    from pacehound.runtime.dead_letter_queue import dead_letter_answer, matching

    with dead_letters_of(Settings.load(os.environ, overrides), store) as letters:
        found = matching(letters, letter_id)
    if as_json:
        print_json({"schema": 1, "letters": [dead_letter_answer(letter) for letter in found]})
    else:
        for letter in found:
            print_dead_letter(terminal(sys.stdout), letter)


@dead_letters.command(name="replay")
@click.argument("letter_ids", metavar="[ID]…", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every one that has not been replayed.")
@set_option
@json_option
def replay_letters(letter_ids: tuple[str, ...], is_all: bool, overrides: tuple[str, ...], as_json: bool) -> None:
    """Put them on the topics that they came from again, and mark them as replayed. Needs Kafka."""
    from pacehound.bus.kafka import KafkaProducer
    from pacehound.clock import SystemClock
    from pacehound.runtime.dead_letter_queue import dead_letters_answer, kafka_dead_letters
    from pacehound.runtime.dead_letter_queue import replay as replay_dead_letters

    if bool(letter_ids) == is_all:
        raise InvalidInput("say which: the beginnings of their ids, or --all")
    kafka = Settings.load(os.environ, overrides).kafka
    producer = KafkaProducer(kafka, "dead-letters")
    try:
        done = replay_dead_letters(
            lambda: kafka_dead_letters(kafka), letter_ids, is_all, producer, now_ns=SystemClock().now_ns()
        )
    finally:
        producer.close()
    if as_json:
        print_json(dead_letters_answer(done))
    else:
        say(f"replayed {len(done)} dead letter{'' if len(done) == 1 else 's'}")


@contextmanager
def dead_letters_of(settings: Settings, store: Path) -> Iterator[Callable[[], Iterable[DeadLetter]]]:
    """Where they are: on Kafka, else in the store."""
    from pacehound.runtime.dead_letter_queue import STORED_DEAD_LETTERS, kafka_dead_letters, stored_dead_letters

    if settings.kafka.servers:
        yield lambda: kafka_dead_letters(settings.kafka)
        return
    from pacehound.cli.history import history

    with history(store) as answers:
        yield lambda: stored_dead_letters(answers.sql(STORED_DEAD_LETTERS))
