"""What the engine and its client raise, translated in one place, for the embedded engine and for a server alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from pacehound.errors import InvalidInput, Unavailable
from storage.address import ServerAddress

# ClickHouse's own numbers: UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED; ACCESS_DENIED.
_REFUSED_LOGIN = frozenset({192, 193, 194, 516})
_ACCESS_DENIED = 497


@contextmanager
def engine_errors(
    what: str, kind: type[Unavailable] | type[InvalidInput] = Unavailable, server: ServerAddress | None = None
) -> Iterator[None]:
    """Raise what Pacehound raises instead of what the client does.

    Parameters
    ----------
    what
        What was not done, for the message.
    kind
        What an answer of the engine ("no such column") is to the caller. No answer at all is always `Unavailable`,
        and a refused login always `InvalidInput`.
    server
        Who asked, and where; `None` for the embedded engine.

    """
    try:
        yield
    except ImportError as error:
        raise Unavailable(f"{what}: {error}; install pacehound[embedded]") from error
    except Exception as error:
        if not _is_engine_error(error):
            raise
        code = code_of(error)
        if server is not None and code in _REFUSED_LOGIN:
            # The server's words differ by version and may name the way it checks; who and where is what helps.
            raise InvalidInput(
                f"{what}: the store at {server.place} refuses the user {server.user!r};"
                " check store.user and store.password"
            ) from None
        if server is not None and code == _ACCESS_DENIED:
            raise InvalidInput(
                f"{what}: the user {server.user!r} may not do this at {server.place}: {first_sentence(error)}"
            ) from error
        if server is not None and code is None and _is_transport(error):
            raise Unavailable(f"{what}: the store at {server.place} does not answer ({_innermost(error)})") from error
        raise kind(f"{what}: {first_sentence(error)}") from error


def _is_engine_error(error: Exception) -> bool:
    # The client's errors, what Arrow says of an answer that is none, a full disk, and a connection that breaks off
    # while an answer is read.
    is_clients = type(error).__module__.startswith(("clickhouse_connect", "chdb", "urllib3"))
    return is_clients or isinstance(error, (pa.ArrowException, OSError))


def code_of(error: Exception) -> int | None:
    """ClickHouse's number; the embedded engine's own connection says it in its words alone."""
    code: int | None = getattr(error, "code", None)
    if code is None and type(error).__module__.startswith("chdb"):
        said = re.search(r"\bCode: (\d+)\.", str(error))
        return int(said[1]) if said else None
    return code


def _is_transport(error: Exception) -> bool:
    return type(error).__name__ == "OperationalError" or not type(error).__module__.startswith("clickhouse_connect")


def _innermost(error: Exception) -> str:
    """Why there is no connection: the last of the layers says it, the others repeat the URL."""
    reason: BaseException = error
    while inner := getattr(reason, "reason", None) or reason.__cause__ or reason.__context__:
        if not isinstance(inner, BaseException):
            break
        reason = inner
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def first_sentence(error: Exception) -> str:
    """The engine's words without the layers around them.

    >>> first_sentence(ValueError("Code: 47. DB::Exception: Unknown expression `x`. (UNKNOWN_IDENTIFIER)"))
    'Unknown expression `x`. (UNKNOWN_IDENTIFIER)'
    """
    text = str(error).strip() or type(error).__name__
    first = text.replace(" FORMAT Arrow", "").splitlines()[0]
    # Over HTTP the client says twice that it is an exception, and which URL it asked.
    first = re.sub(r"^Received ClickHouse exception, code: \d+, server response: |^Streaming query failed: ", "", first)
    first = re.sub(r" \(for url [^)]*\)$", "", first)
    # The engine wraps its own words once per layer: Code: 47. DB::Exception: Code: 47. … (version …). (NAME)
    words = re.sub(r"Code: \d+\. DB::Exception: |\(version (?:[^()]|\([^()]*\))*\)\.? ?", "", first)
    return re.sub(r"(\. \(\w+\))(?: ?\(\w+\)| ?\. \(\w+\))+$", r"\1", words.strip())
