"""Files that people have on disk: who is named, and who is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from collector.importers.recognise import read_call_files
from pacehound.model.call_file import CallFile
from pacehound.model.events import Finding, Progress
from pacehound.pages.analysis.files import files_of
from streams.postmortem import findings_of
from tests.fakes.recorded import RECORDED


def dumps(scenario: str) -> tuple[CallFile, ...]:
    folder = RECORDED / "fr" / scenario
    if not folder.exists():
        pytest.skip(f"the shared recordings are not here: {folder}")
    (job,) = read_call_files(files_of([folder])).sets
    return job.files


def hang(files: tuple[CallFile, ...]) -> Finding:
    (found,) = findings_of(files)
    return found


def test_devices_that_do_not_finish_are_named_and_pipeline_victims_are_not():
    found = hang(dumps("gpu_error_1st"))
    assert (found.verdict, found.cause, found.culprits, found.candidates) == ("culprit", "H3", (12, 14), ())
    assert set(range(8)) <= set(found.victims)


def test_ranks_with_nothing_open_are_suspected_and_no_more_for_a_dump_shows_no_stack():
    found = hang(dumps("lock_gil_1st"))
    assert (found.verdict, found.cause, found.culprits, found.candidates) == ("suspected", "H1", (9, 14), ())


@pytest.mark.parametrize(("scenario", "guilty"), [("gpu_error_1st", (12, 14)), ("lock_gil_1st", (9, 14))])
def test_the_order_of_the_files_does_not_matter(scenario, guilty):
    assert hang(tuple(reversed(dumps(scenario)))).culprits == guilty


def test_a_missing_dump_is_said_and_an_innocent_that_left_none_is_not_named():
    files = tuple(file for file in dumps("gpu_error_1st") if file.ranks != (3,))
    found = hang(files)
    assert found.culprits == (12, 14)
    assert any("3 have left no file" in words for words in found.unseen)


def test_the_guilty_rank_that_left_no_dump_is_suspected():
    found = hang(tuple(file for file in dumps("lock_gil_1st") if file.ranks != (9,)))
    assert (found.verdict, found.culprits) == ("suspected", (9, 14))


def test_from_a_few_dumps_nobody_is_called_a_culprit():
    """Four dumps of sixteen: most of those who are waited for are simply not here."""
    for scenario in ("gpu_error_1st", "lock_gil_1st"):
        files = tuple(file for file in dumps(scenario) if file.ranks[0] in (0, 1, 8, 10))
        for found in findings_of(files):
            assert found.verdict != "culprit", found


def test_a_job_in_which_everything_has_ended_has_no_finding():
    def ended(progress: Progress) -> Progress:
        return replace(
            progress,
            ranks=tuple(structs.replace(p, open=(), pairs=(), last_completed=p.last_launched) for p in progress.ranks),
        )

    files = tuple(
        replace(file, events=tuple(ended(e) if isinstance(e, Progress) else e for e in file.events))
        for file in dumps("gpu_error_1st")
    )
    assert findings_of(files) == []
