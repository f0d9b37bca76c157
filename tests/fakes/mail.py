"""A server of mail on loopback that keeps what it is given; no TLS, no logins."""

from __future__ import annotations

import socketserver
import threading
from dataclasses import dataclass, field


@dataclass
class Mail:
    """What arrived."""

    readers: list[str]
    data: bytes


@dataclass
class FakeMail:
    """`answer` is what it says to DATA instead of taking it; use it in a `with` block.

    It speaks the part of RFC 5321 that a client needs, and no extension but the size: enough to see what is sent.
    """

    answer: str = ""
    messages: list[Mail] = field(default_factory=list)
    commands: list[bytes] = field(default_factory=list)

    def __enter__(self) -> FakeMail:
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                readers: list[str] = []
                self.say("220 fake ESMTP")
                while line := self.rfile.readline():
                    fake.commands.append(line)
                    verb = line[:4].upper()
                    if verb == b"EHLO":
                        self.say("250-fake\r\n250 SIZE 10000000")
                    elif verb == b"RCPT":
                        readers.append(line.decode().split("<")[1].split(">")[0])
                        self.say("250 ok")
                    elif verb == b"DATA":
                        if fake.answer:
                            self.say(fake.answer)
                            continue
                        self.say("354 go on")
                        fake.messages.append(Mail(readers, self.data()))
                        self.say("250 taken")
                    elif verb == b"QUIT":
                        self.say("221 bye")
                        return
                    elif verb in (b"MAIL", b"NOOP", b"RSET"):
                        readers = []
                        self.say("250 ok")
                    else:
                        self.say("502 not here")

            def data(self) -> bytes:
                lines = []
                while (line := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
                return b"".join(lines)

            def say(self, text: str) -> None:
                self.wfile.write(text.encode() + b"\r\n")

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("", 0), Handler)
        self.url = f"smtp://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
