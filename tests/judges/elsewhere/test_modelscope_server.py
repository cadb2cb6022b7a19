"""The one-file server for modelscope's answerers, driven by our client; the pipeline itself is a stand-in."""

import ast
import importlib.util
import threading
from pathlib import Path

import pytest

import rewards.judges
from rewards.errors import RewardsError
from rewards.judges.base import UnsupportedAbility
from rewards.judges.elsewhere.client import TOKEN_ENV, RemoteJudge
from tests import tiny_models

FILE = Path(rewards.judges.__file__).parent / "elsewhere" / "modelscope" / "server.py"


@pytest.fixture
def serve():
    spec = importlib.util.spec_from_file_location("modelscope_server", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    running = []

    def start(answer, token=None):
        running.append(module.make_server("mplug-large", answer, "127.0.0.1", 0, token))
        threading.Thread(target=running[-1].serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_it_answers_our_client_and_failures_abstain(serve):
    def answer(picture, question):
        if question == "boom":
            raise RuntimeError("pipeline failed")
        return f" {picture.width}x{picture.height} {question}"

    judge = RemoteJudge(serve(answer))
    images = [tiny_models.picture(0, (30, 20)), tiny_models.picture(1, (5, 6)), b"broken"]
    assert judge.answer(images, ["how many", "boom", "what"]) == ["30x20 how many", None, None]
    with pytest.raises(UnsupportedAbility, match="in words only"):
        judge.choose(images[:1], ["how many"], [["1"]])
    assert judge.name == "mplug-large"


def test_the_token_is_asked_for(serve, monkeypatch):
    url = serve(lambda picture, question: "yes", token="secret")
    with pytest.raises(RewardsError, match=TOKEN_ENV):
        RemoteJudge(url)
    monkeypatch.setenv(TOKEN_ENV, "secret")
    assert RemoteJudge(url).answer([tiny_models.picture()], ["is it"]) == ["yes"]


def test_it_needs_nothing_of_this_package_and_runs_on_old_pythons():
    tree = ast.parse(FILE.read_text("utf-8"), feature_version=(3, 8))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names
    }  # fmt: skip
    assert "rewards" not in imported
    assert imported - {"modelscope", "PIL"} <= {
        "__future__", "argparse", "base64", "binascii", "hmac", "io", "json", "os", "threading", "http", "typing",
    }  # fmt: skip
