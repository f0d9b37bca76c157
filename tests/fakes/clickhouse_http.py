"""ClickHouse's HTTP interface over chDB: the true protocol, the real engine, a process of its own.

A server binary is large and not to be had everywhere; chDB is the same engine without the door. This is the door, as
clickhouse-connect knocks at it: `GET /ping`; `POST /` (and `GET /`, read-only) with the query in the URL, in the body,
or in both, joined; `database`, `query_id`, settings and `param_*` in the query string; an INSERT with its data behind
the statement, in any format; bodies and answers compressed as their headers say; basic authentication, or
`X-ClickHouse-User` and `X-ClickHouse-Key`; errors as text, with `X-ClickHouse-Exception-Code` and the status that a
server gives them. Every request has a handle of the engine of its own, so settings of one client never reach another.

What a server has and this has not: sessions, external data, roles, TLS, the version of the Native format that
`client_protocol_version` asks for (the client notices and takes the plain one).

`python -m tests.fakes.clickhouse_http FOLDER [--port N] [--user NAME:PASSWORD] [--die MOMENT:TABLE:N]` prints its port
when it is ready. With `--die` it kills itself, as `kill -9` does, at the N-th insert into a table that it gets:
`received` (before the engine sees it), `amid` (while the engine works on it) or `inserted` (before it answers).
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hmac
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import uuid
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import chdb

# What the door takes for itself; every other name in the query string is a setting.
RESERVED = {
    "query", "database", "default_format", "user", "password", "quota_key", "stacktrace", "role", "compress",
    "decompress", "query_id", "session_id", "session_timeout", "session_check", "buffer_size", "wait_end_of_query",
    "client_protocol_version", "close_session",
    # Settings of a server's HTTP part, which the engine alone does not know how to use.
    "enable_http_compression", "http_zlib_compression_level", "send_progress_in_http_headers",
    "http_headers_progress_interval_ms", "cancel_http_readonly_queries_on_client_close",
}  # fmt: skip

INSERT_WITH_DATA = re.compile(
    rb"^\s*(INSERT\s+INTO\s+(?:TABLE\s+)?(?P<table>[^\s(]+).*?)\s+FORMAT\s+(?P<format>\w+)[ \t]*\r?\n?",
    re.IGNORECASE | re.DOTALL,
)
ANSWERS = re.compile(
    rb"^\s*\(*\s*(SELECT|WITH|SHOW|DESC|DESCRIBE|EXISTS|EXPLAIN|CHECK|SYSTEM\s+FLUSH)\b", re.IGNORECASE
)
TRAILING_FORMAT = re.compile(rb"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)

# As ClickHouse has it in exceptionCodeToHTTPStatus.
STATUS = {
    194: 401,
    **dict.fromkeys((192, 193, 497, 516), 403),
    **dict.fromkeys((6, 26, 27, 36, 38, 41, 42, 43, 44, 50, 53, 62, 70, 72, 117, 386, 441), 400),
    **dict.fromkeys((16, 46, 47, 51, 60, 63, 81, 115), 404),
    1: 405,
    48: 501,
}


class Refused(Exception):
    """An exception of the server: its code and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Engine:
    """One chDB engine on one folder."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder)
        # Keeps the engine running between requests.
        self._resident = chdb.connect(self._path)
        [self.version, self.timezone] = (
            self._resident.query("SELECT version(), timezone()", "TSV").bytes().decode().split()
        )

    def run(self, sql, data, database, settings, parameters, before=None):
        """One statement on a fresh handle; `(answer, rows_read)`."""
        handle = chdb.connect(self._path)
        try:
            if database:
                self._query(handle, f"USE `{database}`")
            if settings:
                pairs = ", ".join(f"{name} = '{escaped(value)}'" for name, value in settings.items())
                self._query(handle, f"SET {pairs}")
            if data is None:
                return self._query(handle, sql, parameters)
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                matched = INSERT_WITH_DATA.match(sql)
                statement = f"{matched[1].decode()} FROM INFILE '{file.name}' FORMAT {matched['format'].decode()}"
                if before is not None:
                    before()
                return self._query(handle, statement, parameters)
        finally:
            handle.close()

    @staticmethod
    def _query(handle, sql, parameters=None):
        try:
            result = handle.query(sql, "TabSeparated", params=parameters or {})
        except Exception as error:
            text = str(error)
            text = text[max(text.find("Code: "), 0) :].strip()
            code = re.match(r"Code: (\d+)", text)
            raise Refused(int(code[1]) if code else 1002, text) from error
        return result.bytes() or b"", result.rows_read()


def escaped(text):
    return text.replace("\\", "\\\\").replace("'", "\\'")


def unpacked(body, encoding):
    if encoding in ("", "identity"):
        return body
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "deflate":
        return zlib.decompress(body)
    if encoding == "lz4":
        import lz4.frame

        return lz4.frame.decompress(body)
    if encoding == "zstd":
        from backports import zstd

        return zstd.decompress(body)
    raise Refused(89, f"Code: 89. DB::Exception: Unknown compression method {encoding}. (UNKNOWN_COMPRESSION_METHOD)")


def packed(body, accepted):
    """The body in the first of a server's encodings that the client takes, and its name."""
    names = {part.split(";")[0].strip() for part in accepted.split(",")}
    if "lz4" in names:
        import lz4.frame

        return lz4.frame.compress(body), "lz4"
    if "zstd" in names:
        from backports import zstd

        return zstd.compress(body), "zstd"
    if "gzip" in names:
        return gzip.compress(body), "gzip"
    return body, ""


class Death:
    """Kills this process at one moment of one insert."""

    def __init__(self, moment="", table="", nth=0):
        self.moment, self.table, self._left = moment, table, nth
        self._lock = threading.Lock()

    def due(self, table):
        """Is this insert the one?"""
        with self._lock:
            if table.split(".")[-1].strip("`") != self.table:
                return False
            self._left -= 1
            return self._left == 0

    @staticmethod
    def now():
        os.kill(os.getpid(), signal.SIGKILL)

    def soon(self):
        """In the middle of what the engine does next; how deep is left to chance."""
        seconds = (int.from_bytes(os.urandom(2), "big") / 65536) * 0.03
        threading.Thread(target=lambda: (time.sleep(seconds), self.now()), daemon=True).start()


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version = "ClickHouse"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = urlsplit(self.path).path
        if path in ("/ping", "/replicas_status"):
            self._send(200, b"Ok.\n", {})
        else:
            self._answer(b"", readonly=True)

    def do_POST(self):
        self._answer(self._body(), readonly=False)

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self._exactly(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self._exactly(int(self.headers.get("Content-Length") or 0))

    def _exactly(self, size):
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("the client went away in the middle of its body")
        return body

    def _answer(self, body, readonly):
        arguments = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        query_id = arguments.get("query_id") or str(uuid.uuid4())
        headers = {"X-ClickHouse-Server-Display-Name": "front", "X-ClickHouse-Query-Id": query_id}
        headers["X-ClickHouse-Timezone"] = self.server.engine.timezone
        try:
            self._log_in(arguments)
            answer, more = self._run(arguments, body, readonly)
            headers |= more
            if arguments.get("enable_http_compression") == "1":
                answer, encoding = packed(answer, self.headers.get("Accept-Encoding", ""))
                headers |= {"Content-Encoding": encoding} if encoding else {}
            self._send(200, answer, headers)
        except Refused as error:
            headers |= {"X-ClickHouse-Exception-Code": str(error.code), "Content-Type": "text/plain; charset=UTF-8"}
            text = f"{error} (version {self.server.engine.version} (official build))\n"
            self._send(STATUS.get(error.code, 500), text.encode(), headers)

    def _log_in(self, arguments):
        scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic":
            user, _, password = base64.b64decode(credentials).decode().partition(":")
        elif "X-ClickHouse-User" in self.headers:
            user, password = self.headers["X-ClickHouse-User"], self.headers.get("X-ClickHouse-Key", "")
        else:
            user, password = arguments.get("user", "default"), arguments.get("password", "")
        expected = self.server.users.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise Refused(
                516,
                f"Code: 516. DB::Exception: {user}: Authentication failed: password is incorrect, or there is no user"
                " with such name. (AUTHENTICATION_FAILED)",
            )

    def _run(self, arguments, body, readonly):
        body = unpacked(body, self.headers.get("Content-Encoding", ""))
        statement = arguments.get("query", "").encode()
        sql = statement + b"\n" + body if statement and body else statement or body
        settings = {
            name: value for name, value in arguments.items() if name not in RESERVED and not name.startswith("param_")
        }
        # The limit below counts what is answered before it is compressed, as a server's does.
        settings.setdefault("output_format_arrow_compression_method", "none")
        parameters = {name[6:]: value for name, value in arguments.items() if name.startswith("param_")}
        if readonly and settings.get("readonly", "0") == "0":
            settings["readonly"] = "2"
        database = arguments.get("database") or self.headers.get("X-ClickHouse-Database")
        engine, death = self.server.engine, self.server.death
        insert = INSERT_WITH_DATA.match(sql)
        if insert is None or insert["format"].upper() == b"VALUES":
            answer, rows = engine.run(sql, None, database, settings, parameters)
            limit = int(settings.get("max_result_bytes", "0"))
            if 0 < limit < len(answer):
                # A server counts them while it answers; the engine alone does not.
                text = f"Limit for result exceeded, max bytes: {limit}, current bytes: {len(answer)}."
                raise Refused(396, f"Code: 396. DB::Exception: {text} (TOO_MANY_ROWS_OR_BYTES)")
            headers = {"X-ClickHouse-Summary": json.dumps({"read_rows": str(rows), "written_rows": "0"})}
            if ANSWERS.match(sql):
                named = TRAILING_FORMAT.search(sql)
                headers["X-ClickHouse-Format"] = named[1].decode() if named else "TabSeparated"
            return answer, headers
        doomed = death.due(insert["table"].decode())
        if doomed and death.moment == "received":
            death.now()
        before = death.soon if doomed and death.moment == "amid" else None
        answer, rows = engine.run(sql[: insert.end()], sql[insert.end() :], database, settings, parameters, before)
        if doomed:
            death.now()
        return answer, {"X-ClickHouse-Summary": json.dumps({"read_rows": str(rows), "written_rows": str(rows)})}

    def _send(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Keep-Alive", "timeout=10")
        self.end_headers()
        self.wfile.write(body)


class Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder, port, users, death):
        self.engine, self.users, self.death = Engine(folder), users, death
        super().__init__(("127.0.0.1", port), Door)

    def handle_error(self, request, client_address):
        # A client that goes away is no news.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD")
    parser.add_argument("--die", default="", metavar="MOMENT:TABLE:N")
    options = parser.parse_args()
    users = dict(pair.split(":", 1) for pair in options.user or ["default:"])
    moment, _, rest = options.die.partition(":")
    table, _, nth = rest.partition(":")
    front = Front(options.folder, options.port, users, Death(moment, table, int(nth or 0)))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(front.server_address[1], flush=True)
    front.serve_forever()


if __name__ == "__main__":
    main()
