"""What call files say as a page for the terminal: the verdict first, then who, how we know, and what was not seen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from pacehound.model.evidence.phrases import ranks_words
from pacehound.pages.analysis.calls import CallSource
from pacehound.pages.incidents import finding_block, headline

_NOTHING = "No rank is seen to hold the job up or to slow it down."
_MOST_NOTES = 8


def call_source_page(source: CallSource) -> RenderableType:
    """One job."""
    parts: list[RenderableType] = [Text(source.path, style="bold", overflow="fold")]
    for finding in source.findings:
        block = finding_block(finding, title=headline(finding), ongoing="when the files were written it lasted")
        parts.append(Padding(block, (1, 0, 1, 2)))
    if not source.findings:
        parts.append(Padding(Text(_NOTHING, style="green"), (1, 0, 1, 2)))
    parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in _facts(source)]
    return Group(*parts)


def _facts(source: CallSource) -> Iterator[str]:
    count = "1 file" if len(source.files) == 1 else f"{len(source.files)} files"
    world = f" of {source.world_size}" if source.world_size else ""
    yield f"{source.format}, {count}, {ranks_words(source.ranks)}{world}"
    if source.missing_ranks:
        yield f"missing: the files of {ranks_words(source.missing_ranks)}; what they did is not known"
    everybody = source.ranks
    for note, ranks in source.notes[:_MOST_NOTES]:
        whose = "" if ranks == everybody else f" ({ranks_words(ranks)})"
        yield f"note{whose}: {note}"
    if len(source.notes) > _MOST_NOTES:
        yield f"… and {len(source.notes) - _MOST_NOTES} more notes (--json has them all)"
    if not source.findings:
        # A finding says it itself, among what was not seen.
        yield from (f"these files cannot tell {said}" for said in source.cannot_know)
