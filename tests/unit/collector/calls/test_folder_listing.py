"""A folder is listed again when something has changed in it, and not otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.calls import folder_listing
from collector.calls.folder_listing import FolderListing


def test_what_comes_and_goes_is_seen_and_other_names_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    listing = FolderListing(folder, ".ring")
    assert listing.names() == []
    folder.mkdir()
    found = []
    for tick, name in enumerate(("b.ring", "a.ring", "c.tmp", "b.ring")):
        (folder / name).unlink() if (folder / name).exists() else (folder / name).touch()
        os.utime(folder, ns=(tick, tick))
        found.append(list(listing.names()))
    assert found == [["b.ring"], ["a.ring", "b.ring"], ["a.ring", "b.ring"], ["a.ring"]]


def test_a_second_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    listing = FolderListing(tmp_path, ".ring")
    (tmp_path / "a.ring").touch()
    os.utime(tmp_path, ns=(5, 5))
    listing.names()
    (tmp_path / "b.ring").touch()
    os.utime(tmp_path, ns=(5, 5))
    assert listing.names() == ["a.ring", "b.ring"]


def test_a_quiet_folder_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.ring").touch()
    listing = FolderListing(tmp_path, ".ring")
    listing.names()
    listing.names()
    monkeypatch.setattr(folder_listing.os, "listdir", lambda _: pytest.fail("it was listed"))
    assert listing.names() == ["a.ring"]
