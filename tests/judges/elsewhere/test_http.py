"""The client against servers that keep to the protocol and to nothing else."""

import json
import socket
import threading
import time
from email.utils import formatdate

import pytest

from rewards.judges.elsewhere import http
from rewards.judges.elsewhere.http import Connection, GaveUp
from tests.judges.elsewhere.chat_server import ChatServer, ok


class Dripping:
    """Sends its bytes one at a time, `pause` seconds apart, for ever."""

    def __init__(self, first: bytes, pause: float = 0.05) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._first, self._pause, self._ended = first, pause, threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._drip, args=(line,), daemon=True).start()

    def _drip(self, line: socket.socket) -> None:
        try:
            line.recv(65536)
            line.sendall(self._first)
            while not self._ended.wait(self._pause):
                line.sendall(b"1")
        except OSError:
            pass

    def stop(self) -> None:
        self._ended.set()
        self._listening.close()


@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1."]
)
def test_the_deadline_holds_while_bytes_drip_in(first):
    server = Dripping(first)
    start = time.monotonic()
    with pytest.raises(GaveUp, match=r"no answer within 0\.6 s"):
        Connection(server.url, deadline=0.6, timeout=60.0).post("/", {})
    server.stop()
    assert time.monotonic() - start < 3


def test_an_answer_without_end_is_cut(monkeypatch):
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1000)
    server = ChatServer(lambda number, body: (200, {}, b"1" * 5000))
    with pytest.raises(GaveUp, match="more than 1000 bytes"):
        Connection(server.url, deadline=3.0).post("/chat", {})
    server.stop()


@pytest.mark.parametrize(
    "wait", ["0", "-5", "nan", "-inf", "0.0", "soon", "", formatdate(0), "Thu, 99 Foo 2026 99:99:99 GMT", "1e-9"]
)
def test_a_wait_that_is_none_does_not_hammer_the_server(wait):
    server = ChatServer(lambda number, body: (429, {"Retry-After": wait}, b""))
    with pytest.raises(GaveUp):
        Connection(server.url, deadline=2.0).post("/chat", {})
    server.stop()
    assert 2 <= len(server.requests) <= 6


def test_a_wait_beyond_the_deadline_is_not_begun():
    for wait in ("1000", "inf", "1e400"):
        server = ChatServer(lambda number, body, wait=wait: (429, {"Retry-After": wait}, b""))
        start = time.monotonic()
        with pytest.raises(GaveUp):
            Connection(server.url, deadline=5.0).post("/chat", {})
        server.stop()
        assert time.monotonic() - start < 2 and len(server.requests) == 1


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b'{"choices": ', b"\xff\xfe", b"null", b""])
def test_broken_json_is_tried_again_and_ends_in_a_reason(monkeypatch, content):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    server = ChatServer(lambda number, body: (200, {}, content) if number == 1 else ok({"fine": True}))
    assert Connection(server.url, deadline=5.0).post("/chat", {}) == {"fine": True}
    server.stop()
    always = ChatServer(lambda number, body: (200, {}, content))
    with pytest.raises(GaveUp, match="JSON"):
        Connection(always.url, deadline=2.0).post("/chat", {})
    always.stop()


COMPLAINTS = [
    {"error": "overloaded"}, {"error": {"message": "busy"}}, {"error": {"code": 503, "message": "busy"}},
    {"error": {"code": "x"}}, {"error": "busy", "choices": []}, {"object": "error", "message": "busy", "code": 500},
    {"object": "error"}, {"detail": "busy"}, {"detail": [{"msg": "busy"}]}, {"errors": ["busy"]},
    {"errors": [{"message": "busy"}]}, {"message": "busy"}, {"status": "error"}, {"success": False, "result": None},
    {"fault": {"faultstring": "busy"}}, {"object": "error", "code": 429}, {"error_message": "busy"},
]  # fmt: skip


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=json.dumps)
def test_an_error_with_status_200_is_tried_again(monkeypatch, complaint):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    server = ChatServer(lambda number, body: ok(complaint if number < 3 else {"fine": True}))
    assert Connection(server.url, deadline=5.0).post("/chat", {}) == {"fine": True}
    server.stop()


@pytest.mark.parametrize("answer", [{"choices": [], "detail": "x"}, {"rows": [], "message": "x"}, {"error": None}, {}])
def test_what_stands_beside_an_answer_is_no_complaint(answer):
    server = ChatServer(lambda number, body: ok(answer))
    assert Connection(server.url, deadline=1.0).post("/chat", {}) == answer
    server.stop()


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 529, 530])
def test_statuses_that_may_pass_are_tried_again(monkeypatch, status):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    server = ChatServer(lambda number, body: (status, {}, b"busy") if number < 3 else ok({"fine": True}))
    assert Connection(server.url, deadline=5.0).post("/chat", {}) == {"fine": True}
    server.stop()


@pytest.mark.parametrize("code", [400, "400"])
@pytest.mark.parametrize("nested", [True, False])
def test_a_refusal_with_status_200_is_not(code, nested):
    said = {"object": "error", "code": code, "message": "image too large"}
    server = ChatServer(lambda number, body: ok({"error": said} if nested else said))
    with pytest.raises(GaveUp, match=r"refused the request \(400\).*image too large"):
        Connection(server.url, deadline=5.0).post("/chat", {})
    server.stop()
    assert len(server.requests) == 1


def test_many_threads_share_a_connection():
    server = ChatServer(lambda number, body: ok({"echo": body["value"]}))
    connection = Connection(server.url)
    found = {}
    threads = [
        threading.Thread(target=lambda at=at: found.update({at: connection.post("/chat", {"value": at})["echo"]}))
        for at in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.close()
    server.stop()
    assert found == {at: at for at in range(20)} and json.dumps(found)
