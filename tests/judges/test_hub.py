"""A checkpoint that is not there is one line, after one request; a real HTTP server stands for the hub."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from rewards.errors import InputError
from rewards.judges.hub import why_missing
from rewards.judges.loading import load_judge
from rewards.tifa.matching import AnswerMatcher

Hub = Callable[..., list[str]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """`hub(status, **headers)` -> the paths that were asked for at a hub that always answers so."""
    servers = []

    def start(status: int, **headers: str) -> list[str]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        return asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (404, {"X_Error_Code": "RepoNotFound"}, "no such checkpoint"),
        (401, {}, "no such checkpoint, or it is private"),
        (403, {"X_Error_Code": "GatedRepo"}, "must grant access"),
        (404, {"X_Error_Code": "RevisionNotFound"}, "no revision 'v9'"),
        (404, {"X_Error_Code": "EntryNotFound"}, "has no config.json"),
    ],
)
def test_what_the_hub_refuses_is_said_in_plain_words(hub: Hub, status: int, headers: dict[str, str], reason: str):
    asked = hub(status, **headers)
    assert reason in (why_missing("some/model", revision="v9") or "")
    assert asked == ["/some/model/resolve/v9/config.json"]


def test_a_busy_hub_is_left_to_its_client(hub: Hub):
    hub(503)
    assert why_missing("some/model") is None


def test_an_unknown_judge_is_one_line_after_one_request(hub: Hub, capfd: pytest.CaptureFixture[str]):
    asked = hub(404, X_Error_Code="RepoNotFound")
    with pytest.raises(InputError, match=r"unknown judge 'some/model'.*no such checkpoint") as raised:
        load_judge("some/model")
    assert len(asked) == 1 and "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}")
    with pytest.raises(InputError, match="cannot be reached: ConnectError") as raised:
        load_judge("some/model")
    with pytest.raises(InputError, match=r"'some/sbert' cannot be loaded .*cannot be reached.*sentence_model=None"):
        AnswerMatcher("some/sbert").load()
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_directories_and_names_that_are_none_are_not_asked_for(tmp_path):
    assert why_missing(str(tmp_path)) is None
    assert "not the name" in (why_missing("a b") or "")
    assert "switched off" in (why_missing("some/model") or "")
