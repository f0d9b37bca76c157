"""A test over many cases fails where one of them does, and says which."""

from __future__ import annotations

import pytest

from tests.fakes.for_every import for_every


def test_each_case_that_fails_is_named_with_what_is_wrong_with_it_and_the_others_are_looked_at() -> None:
    seen = []

    @for_every({"one": 1, "two": 2, "three": 3, "nought": 0})
    def is_a_divisor_of_two(case: int) -> None:
        seen.append(case)
        assert 2 % case == 0, f"{case} is none"

    with pytest.raises(AssertionError, match=r"2 of 4 cases:\nthree: AssertionError: 3 is none") as error:
        is_a_divisor_of_two()
    assert "nought: ZeroDivisionError" in str(error.value)
    assert seen == [1, 2, 3, 0]


def test_what_was_to_be_refused_and_is_not_fails_too() -> None:
    @for_every({"a number": "7"})
    def is_refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(text)

    with pytest.raises(AssertionError, match=r"1 of 1 cases:\na number: Failed: DID NOT RAISE"):
        is_refused()


def test_no_case_is_no_pass() -> None:
    empty: dict[str, int] = {}
    with pytest.raises(AssertionError, match="there is no case"):
        for_every(empty)(lambda _: None)()
