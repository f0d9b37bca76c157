"""The lock beside a store."""

import os

import pytest

from pacehound.errors import InvalidInput, StoreOwned
from storage.ownership import OWNER_FILE, Owner, Ownership, owner_of


def test_a_folder_has_one_owner_who_is_named_to_the_second(tmp_path):
    owner = Ownership(tmp_path)
    try:
        with pytest.raises(StoreOwned, match=f"process {os.getpid()}"):
            Ownership(tmp_path)
    finally:
        owner.release()


def test_a_released_folder_can_be_taken_again(tmp_path):
    Ownership(tmp_path).release()
    Ownership(tmp_path).release()
    assert owner_of(tmp_path) is None


def test_the_owner_says_where_it_answers(tmp_path):
    owner = Ownership(tmp_path)
    try:
        owner.announce("http://127.0.0.1:4318")
        assert owner_of(tmp_path) == Owner(pid=os.getpid(), address="http://127.0.0.1:4318")
        with pytest.raises(StoreOwned, match=r"answers at http://127\.0\.0\.1:4318"):
            Ownership(tmp_path)
    finally:
        owner.release()


def test_nobody_owns_a_folder_without_a_store(tmp_path):
    assert owner_of(tmp_path) is None
    assert owner_of(tmp_path / "missing") is None


def test_a_damaged_owner_file_still_says_that_somebody_has_it(tmp_path):
    owner = Ownership(tmp_path)
    try:
        (tmp_path / OWNER_FILE).write_text("{")
        assert owner_of(tmp_path) == Owner(pid=0)
        with pytest.raises(StoreOwned, match="another process"):
            Ownership(tmp_path)
    finally:
        owner.release()


def test_a_folder_that_is_missing_is_bad_input(tmp_path):
    with pytest.raises(InvalidInput, match="missing"):
        Ownership(tmp_path / "missing")
