"""What a process says of the exception that ends it, in 84 bytes."""

from __future__ import annotations

from multiprocessing.pool import RemoteTraceback

import pytest

from pacehound.instrument.exits import _said


def raised(error: BaseException, cause: BaseException | None) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad batch"), "ValueError: bad batch"),
        (
            raised(RuntimeError("\n[Stage 0] failed to run forward:\nargs"), OSError(28, "No space left on device")),
            "OSError: [Errno 28] No space left on device (RuntimeError: [Stage 0] failed to run forward:)",
        ),
        (
            raised(ValueError("a"), raised(KeyError("b"), TypeError("c"))),
            "TypeError: c (ValueError: a)",
        ),
        (raised(ValueError("bad sample"), RemoteTraceback('\n"""\nTraceback')), "ValueError: bad sample"),
    ],
    ids=["by itself", "raised from another", "raised from one that was", "in a worker of a pool"],
)
def test_what_an_exception_was_raised_from_is_told_first(error: BaseException, said: str) -> None:
    assert _said(type(error), error) == said


def test_exceptions_that_are_each_others_cause_have_an_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert _said(ValueError, one) == "ValueError: one"
