"""The lock beside a store."""

import os

import pytest

from pacehound.errors import InvalidInput, StoreOwned
from storage.ownership import OWNER_FILE, Ownership


def test_a_folder_has_one_owner_who_is_named_to_the_second(tmp_path):
    owner = Ownership(tmp_path)
    try:
        for _ in range(2):  # a refusal takes nothing from the owner
            with pytest.raises(StoreOwned, match=f"process {os.getpid()}"):
                Ownership(tmp_path)
    finally:
        owner.release()


def test_a_released_folder_can_be_taken_again(tmp_path):
    owner = Ownership(tmp_path)
    owner.release()
    owner.release()
    Ownership(tmp_path).release()


def test_an_owner_who_has_not_yet_said_who_it_is_is_an_owner_too(tmp_path):
    owner = Ownership(tmp_path)
    try:
        (tmp_path / OWNER_FILE).write_text("")
        with pytest.raises(StoreOwned, match="another process"):
            Ownership(tmp_path)
    finally:
        owner.release()


def test_a_folder_that_is_missing_is_bad_input(tmp_path):
    with pytest.raises(InvalidInput, match="missing"):
        Ownership(tmp_path / "missing")
