"""Many small cases of one kind in one test: what pytest does for each of its tests takes longer than they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest

T = TypeVar("T")


def for_every(cases: Mapping[str, T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """A test that looks at all cases, and names each that fails with what is wrong with it."""

    def over(check: Callable[[T], None]) -> Callable[[], None]:
        def over_all() -> None:
            assert cases, "there is no case"
            wrong = []
            for name, case in cases.items():
                try:
                    check(case)
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(f"{name}: {type(error).__name__}: {error}")
            assert not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong)

        over_all.__name__, over_all.__doc__, over_all.__module__ = check.__name__, check.__doc__, check.__module__
        return over_all

    return over
