"""A real HTTP server on loopback that speaks the chat protocol, well or badly, as its script says."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def ratings_answer(listed: dict[str, float]) -> dict[str, Any]:
    """A completion whose first token has the listed probabilities."""
    top = [{"token": token, "logprob": math.log(probability)} for token, probability in listed.items()]
    first = (
        {"token": top[0]["token"], "logprob": top[0]["logprob"], "top_logprobs": top} if top else {"top_logprobs": []}
    )
    return {
        "choices": [{"message": {"role": "assistant", "content": "4"}, "logprobs": {"content": [first]}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 1},
    }


class ChatServer:
    """Answers by `behave(number of the request, request body) -> (status, headers, bytes)`, or None to drop the
    line."""

    def __init__(self, behave: Callable[[int, dict[str, Any]], Any], port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self.times: list[float] = []
        self._open: set[socket.socket] = set()
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                outer._open.add(self.connection)

            def finish(self) -> None:
                outer._open.discard(self.connection)
                super().finish()

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._send(200, {}, json.dumps({"data": [{"id": "gpt-test"}]}).encode())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.requests.append(body)
                    outer.times.append(time.monotonic())
                    number = len(outer.requests)
                    outer.at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer.at_once)
                outer.headers = dict(self.headers)
                try:
                    answer = behave(number, body)
                finally:
                    with lock:
                        outer.at_once -= 1
                if answer is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, headers, content = answer
                self._send(status, headers, content)

            def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
                with contextlib.suppress(OSError):  # the line may have been cut
                    self._write(status, headers, content)

            def _write(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """As a killed process: nobody listens, and open lines are cut."""
        self._server.shutdown()
        self._server.server_close()
        for line in list(self._open):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)


def ok(answer: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()
