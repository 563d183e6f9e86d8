"""A web server in a thread, which can also behave badly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """How the server answers; `moods` are taken one a request, then it behaves."""

    content: bytes
    ranges: bool = True
    length: bool = True
    moods: list[str] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)
    """The Range header of each request."""


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve under the address that is given, until the block ends."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            behaviour.asked.append(wanted)
            mood = behaviour.moods.pop(0) if behaviour.moods else "good"
            if mood.isdigit():
                self.send_error(int(mood))
                return
            content = bytes(len(behaviour.content)) if mood == "wrong bytes" else behaviour.content
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and behaviour.ranges else 0
            if wanted and behaviour.ranges and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted and behaviour.ranges else 200)
            if wanted and behaviour.ranges:
                first = start + 1 if mood == "wrong range" else start
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            if behaviour.length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            rest = content[start:]
            if mood in ("break", "break early", "stall"):
                self.wfile.write(rest[: len(rest) // (4 if mood == "break early" else 2)])
                self.wfile.flush()
                if mood == "stall":
                    over.wait(5)
                return
            if mood == "slow":
                time.sleep(0.2)
            self.wfile.write(rest)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/file.bin"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
