"""`rewards serve` and its client, over a real uvicorn on loopback."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import torch
import uvicorn

from rewards.errors import InputError, RewardsError
from rewards.images import Picture
from rewards.judges.base import UnsupportedAbility
from rewards.judges.batching import BatchingJudge
from rewards.judges.elsewhere import client, http
from rewards.judges.elsewhere.bodies import Limits
from rewards.judges.elsewhere.client import TOKEN_ENV, RemoteJudge
from rewards.judges.elsewhere.server import build_app
from rewards.judges.loading import load_judge
from tests import tiny_models


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    def __init__(self, app, port=None):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="error", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self):
        self.server.force_exit = self.server.should_exit = True
        self.thread.join(10)


@pytest.fixture
def serve():
    running = []

    def start(app, port=None):
        running.append(Served(app, port))
        return running[-1]

    yield start
    for served in running:
        served.stop()


def rows():
    images = [tiny_models.picture(0), tiny_models.picture(1, (90, 60)), b"broken", tiny_models.picture(0)]
    return images, ["rate a", "rate b </s> <image>", "rate c", "rate d"]


def test_a_served_rater_scores_as_a_local_one(tiny_judge, serve):
    local = tiny_judge("llava")
    remote = load_judge(serve(build_app({"rater": local})).url)
    images, prompts = rows()
    here, there = local.rate(images, prompts), remote.rate(images, prompts)
    assert torch.equal(here.probabilities.nan_to_num(-1), there.probabilities.nan_to_num(-1))
    assert there.probabilities[2].isnan().all() and "image 2" in there.reasons[2]
    assert there.reasons[0] is None
    assert remote.identity()["name"] == local.name and remote.identity()["preprocessing"] == "CLIPImageProcessor"
    pair = [images[0], images[1]]
    assert torch.equal(local.rate([pair], ["two"]).probabilities, remote.rate([pair], ["two"]).probabilities)
    assert remote.explain(images[:1], ["rate"], ["4"]) == local.explain(images[:1], ["rate"], ["4"])


def test_a_served_answerer_answers_as_a_local_one(tiny_judge, serve):
    local = tiny_judge("vilt")
    remote = RemoteJudge(serve(build_app({"vilt": local, "blip": tiny_judge("blip")})).url + "/vilt")
    images = [tiny_models.picture(0, (48, 48)), b"broken"]
    assert remote.answer(images, ["how many", "what"]) == local.answer(images, ["how many", "what"])
    here, there = (judge.choose(images, ["how many", "what"], [["1", "purple"], ["red"]]) for judge in (local, remote))
    assert torch.equal(here[0], there[0]) and there[0][1] == -torch.inf and there[1].isnan().all()
    with pytest.raises(UnsupportedAbility, match="cannot rate"):
        remote.rate(images, ["a", "b"])


@pytest.mark.parametrize("kind", ["llava", "blip"])
def test_masses_come_from_a_served_judge_as_from_a_local_one(tiny_judge, serve, kind):
    local = tiny_judge(kind)
    remote = RemoteJudge(serve(build_app({kind: local})).url)
    images, prompts = [tiny_models.picture(0), b"broken", tiny_models.picture(0)], ["is it red"] * 3
    forms = [["yes", "Yes"], ["yes"], ["two", "2"]]
    here, there = local.mass(images, prompts, forms), remote.mass(images, prompts, forms)
    assert torch.equal(here.nan_to_num(-1), there.nan_to_num(-1))
    assert there.isnan().tolist() == [False, True, False] and there[0] != there[2]
    assert remote.one_word == local.one_word == BatchingJudge(local).one_word


def test_calls_are_sent_in_parts(tiny_judge, serve):
    local = tiny_judge("llava")
    remote = RemoteJudge(serve(build_app({"rater": local}, limits=Limits(bytes=40_000))).url, bytes_a_request=20_000)
    images, prompts = [tiny_models.picture(seed) for seed in range(9)], [f"rate {at}" for at in range(9)]
    assert torch.allclose(
        remote.rate(images, prompts).probabilities, local.rate(images, prompts).probabilities, atol=1e-6
    )


def test_a_picture_is_encoded_once_for_all_clients_of_a_process(tiny_judge, serve, monkeypatch):
    encoded = []
    written = client.write_picture
    monkeypatch.setattr(client, "write_picture", lambda picture: encoded.append(picture) or written(picture))
    monkeypatch.setattr(client, "_sent", client._Sent())
    url, image = serve(build_app({"rater": tiny_judge("llava")})).url, tiny_models.picture(0)
    remotes = [RemoteJudge(url) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: remotes[at].rate([image.copy()], [f"rate {at}"]).probabilities, range(8)))
    expected = tiny_judge("llava").rate([image] * 8, [f"rate {at}" for at in range(8)]).probabilities
    assert torch.allclose(torch.cat(found), expected, atol=1e-6) and len(encoded) == 1
    monkeypatch.setattr(client, "MOST_KEPT", 1)
    for seed in (1, 2, 2, 1):
        remotes[0].rate([tiny_models.picture(seed)], ["rate"])
    assert len(encoded) == 4  # beyond what may be kept, the last one only


def test_a_picture_that_cannot_be_encoded_fails_those_who_wait_for_it_and_is_tried_again(monkeypatch):
    sent, image = client._Sent(), Picture(tiny_models.picture(0), "key")

    def broken(picture):
        raise OSError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(client, "write_picture", broken)
        with pytest.raises(OSError, match="no memory"):
            sent.encoded(image)
    assert sent.encoded(image).pixels == image.pixels.width * image.pixels.height


def test_several_judges_need_a_name(tiny_judge, serve):
    served = serve(build_app({"a": tiny_judge("vilt"), "b": tiny_judge("blip")}))
    with pytest.raises(InputError, match="add /NAME, one of a, b"):
        RemoteJudge(served.url)
    with pytest.raises(InputError, match="no judge 'c'"):
        RemoteJudge(served.url + "/c")


def test_limits_and_token(tiny_judge, serve, monkeypatch):
    served = serve(build_app({"j": tiny_judge("vilt")}, token="secret", limits=Limits(bytes=5000, rows=3)))
    with pytest.raises(RewardsError, match="set REWARDS_JUDGE_TOKEN"):
        RemoteJudge(served.url)
    assert httpx.post(served.url + "/judges/j/answer", json={}).status_code == 401
    monkeypatch.setenv(TOKEN_ENV, "secret")
    remote = RemoteJudge(served.url)
    assert remote.answer([tiny_models.picture(0, (400, 400))], ["a"]) == [None]  # too large: abstains, not an exception
    small = tiny_models.picture(0, (28, 28))
    assert remote.answer([small] * 2, ["a", "b"]) != [None, None]
    assert remote.answer([small] * 4, ["a"] * 4) == [None] * 4


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 422), (b"[]", 422), (b'{"pictures": {}, "rows": [{"pictures": ["x"], "prompt": "a"}]}', 422),
        (b'{"pictures": {"x": "!!"}, "rows": [{"pictures": ["x"], "prompt": "a"}]}', 422),
        (b'{"pictures": {}, "rows": [{"pictures": [], "prompt": "a"}]}', 422),
        (b'{"pictures": {}, "rows": [], "code": "import os"}', 422), (b"\xff" * 100_000, 413),
    ],
)  # fmt: skip
def test_malformed_requests_are_refused(tiny_judge, serve, content, status):
    served = serve(build_app({"j": tiny_judge("vilt")}, limits=Limits(bytes=50_000)))
    json_type = {"Content-Type": "application/json"}
    assert httpx.post(served.url + "/judges/j/answer", content=content, headers=json_type).status_code == status
    assert httpx.post(served.url + "/judges/j/eval", content=b"{}", headers=json_type).status_code == 404
    assert httpx.get(served.url + "/health").json()["status"] == "ok"


def test_a_killed_and_restarted_server_is_survived(tiny_judge, serve, monkeypatch):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.05)
    app = build_app({"rater": tiny_judge("llava")})
    first = serve(app)
    remote = RemoteJudge(first.url, deadline=60.0, bytes_a_request=1)
    images, prompts = [tiny_models.picture(seed) for seed in range(12)], [f"rate {at}" for at in range(12)]
    expected = tiny_judge("llava").rate(images, prompts).probabilities
    first.stop()
    again = threading.Timer(0.7, lambda: serve(app, first.port))
    again.start()
    assert torch.allclose(remote.rate(images, prompts).probabilities, expected, atol=1e-6)
    assert remote._connection.counts["retries"] > 0


def test_a_server_that_stays_dead_ends_in_abstention(tiny_judge, serve):
    served = serve(build_app({"j": tiny_judge("vilt")}))
    remote = RemoteJudge(served.url, deadline=0.3)
    served.stop()
    assert remote.answer([tiny_models.picture()], ["a"]) == [None]
    assert remote.choose([tiny_models.picture()], ["a"], [["b", "c"]])[0].isnan().all()


ENTRY = {"name": "j", "identity": {}, "prompts": None}


@pytest.mark.parametrize(
    "health",
    [{"protocol": 1, "judges": {"j": {}}}, {"protocol": 1, "judges": {"j": None}}, {"protocol": 1, "judges": ["j"]},
     {"protocol": 1, "judges": {"j": ENTRY | {"identity": None}}}, {"protocol": 1, "judges": "j"}, {"status": "ok"},
     {"protocol": 1, "judges": {"j": {"name": "j", "prompts": None}}}, ["j"], "ok", None, 3,
     {"protocol": 1, "judges": {"j": ENTRY | {"prompts": "rate"}}},
     {"protocol": 1, "judges": {"j": ENTRY | {"name": 3}}}],
    ids=str,
)  # fmt: skip
def test_a_health_of_another_shape_is_one_line_that_names_the_address(health):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = json.dumps(health).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(RewardsError, match="is not `rewards serve`") as caught:
        RemoteJudge(url)
    server.shutdown()
    assert url in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_not_a_judge_is_named(serve):
    from fastapi import FastAPI

    with pytest.raises(RewardsError, match="is not `rewards serve`"):
        RemoteJudge(serve(FastAPI()).url)
    with pytest.raises(RewardsError, match="no judge answers"):
        RemoteJudge("http://127.0.0.1:9")


def test_the_command_refuses_to_listen_beyond_this_machine_without_a_token(monkeypatch):
    from rewards.cli.serve import serve as command

    monkeypatch.delenv(TOKEN_ENV, raising=False)
    with pytest.raises(InputError, match="REWARDS_JUDGE_TOKEN"):
        command(judge=["vilt"], host="0.0.0.0", port=1, device=[], dtype=None, max_megabytes=1, max_rows=1)
