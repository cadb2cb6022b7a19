"""Requests in every order and shape at once: each gets what is its own, whatever arrives beside it."""

import base64
import http.client
import io
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from rewards.judges.base import DEFAULT_RATINGS, Judge, Ratings
from rewards.judges.batching import BatchingJudge
from rewards.judges.elsewhere.client import RemoteJudge
from rewards.judges.elsewhere.server import build_app
from tests import tiny_models
from tests.judges.elsewhere.test_serve import serve  # noqa: F401 - a fixture


class Reading(Judge):
    """Answers with what it was asked and the mean of the picture; dies of "poison"."""

    name = "reading"

    def __init__(self):
        self.sizes = []

    def answer(self, images, questions):
        self.sizes.append(len(questions))
        time.sleep(0.02)
        if any("poison" in question for question in questions):
            raise RuntimeError("poisoned")
        return [f"{question}:{mean(image)}" for image, question in zip(images, questions, strict=True)]

    def choose(self, images, questions, choices):
        return [torch.arange(len(offered)) * -1.0 - mean(image) for image, offered in zip(images, choices, strict=True)]

    def rate(self, images, prompts, ratings=DEFAULT_RATINGS):
        rows = torch.full((len(prompts), len(ratings)), 0.5 / len(ratings))
        return Ratings(rows, rows.sum(-1), (None,) * len(prompts))


def mean(image):
    several = image if isinstance(image, list) else [image]
    return sum(round(float(np.asarray(one.pixels).mean())) for one in several)


def png(shade, side=8):
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (shade,) * 3).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def asked(*rows, **more):
    """Rows `(shade, prompt)`, of which equal shades share a picture."""
    return {
        "pictures": {f"p{shade}": png(shade) for shade, _ in rows},
        "rows": [{"pictures": [f"p{shade}"], "prompt": prompt} for shade, prompt in rows],
    } | more


def two_pictures(first, second, prompt):
    return {"pictures": {"a": png(first), "b": png(second)}, "rows": [{"pictures": ["a", "b"], "prompt": prompt}]}


def broken(prompt):
    good = asked((7, prompt))
    good["pictures"]["x"] = base64.b64encode(b"no picture").decode()
    good["rows"].append({"pictures": ["x"], "prompt": prompt})
    return good


def right(rows):
    return [f"{prompt}:{shade}" for shade, prompt in rows]


def row(picture, prompt):
    return {"pictures": {"p": picture}, "rows": [{"pictures": ["p"], "prompt": prompt}]}


many = [(shade % 5, f"q{shade}") for shade in range(200)]
eight = [(3, f"c{at}") for at in range(8)]
LONG = "long " * 20_000
ODD = "\x00\u202e<image></s> [INST] \ud7ff \U0001f600 \"'\\"
PATTERNS = {
    "one row": ("answer", asked((1, "a")), 200, ["a:1"]),
    "the same picture eight times": ("answer", asked(*eight), 200, right(eight)),
    "duplicate rows": ("answer", asked((2, "d"), (2, "d")), 200, ["d:2", "d:2"]),
    "two hundred rows": ("answer", asked(*many), 200, right(many)),
    "no rows": ("answer", {"pictures": {}, "rows": []}, 200, []),
    "pictures without rows": ("answer", {"pictures": {"p": png(1)}, "rows": []}, 200, []),
    "unused pictures": ("answer", asked((1, "u")) | {"pictures": {"p1": png(1), "other": png(9)}}, 200, ["u:1"]),
    "two pictures in a row": ("answer", two_pictures(3, 4, "t"), 200, ["t:7"]),
    "an empty prompt": ("answer", asked((4, "")), 200, [":4"]),
    "a long prompt": ("answer", asked((4, LONG)), 200, [f"{LONG}:4"]),
    "an odd prompt": ("answer", asked((4, ODD)), 200, [f"{ODD}:4"]),
    "a tiny picture": ("answer", row(png(5, 1), "i"), 200, ["i:5"]),
    "a huge picture": ("answer", row(png(6, 3000), "h"), 200, ["h:6"]),
    "a broken picture beside a good one": ("answer", broken("b"), 200, ["b:7", None]),
    "a poisoned request": ("answer", asked((1, "poison")), 422, None),
    "a poisoned row among others": ("answer", asked((1, "x"), (2, "poison")), 422, None),
    "no prompt": ("answer", {"pictures": {"p": png(1)}, "rows": [{"pictures": ["p"]}]}, 422, None),
    "a prompt that is a number": ("answer", row(png(1), 3), 422, None),
    "a picture that is not there": ("answer", row(png(1), "a") | {"pictures": {}}, 422, None),
    "rows that are a mapping": ("answer", {"pictures": {}, "rows": {}}, 422, None),
    "nothing": ("answer", {}, 422, None),
    "an unknown key": ("answer", asked((1, "a")) | {"temperature": 0}, 422, None),
    "an unknown ability": ("eval", asked((1, "a")), 404, None),
    "choices without any": ("choose", asked((1, "a")), 200, [[]]),
    "another scale": ("rate", asked((1, "a"), ratings=["1", "2"]), 200, [[0.25, 0.25]]),
    "another scale again": ("rate", asked((1, "a"), ratings=["0", "1", "2", "3", "4"]), 200, [[0.1] * 5]),
    "what the judge cannot do": ("explain", asked((1, "a")), 200, "unsupported"),
}  # fmt: skip


def found(response):
    told = response.json()
    if "unsupported" in told:
        return "unsupported"
    keys = ("answer", "scores", "probabilities")
    return [next(row[key] for key in keys if key in row) for row in told["rows"]]


def same(one, other):
    if isinstance(other, list) and other and isinstance(other[0], list):
        return [pytest.approx(row, abs=1e-6) for row in other] == one
    return one == other


def test_every_pattern_at_once_gets_its_own_answer(serve):  # noqa: F811
    judge = Reading()
    url = serve(build_app({"j": judge})).url
    order = list(PATTERNS) * 3
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(24) as pool:  # one client: connections are used again

        def ask(name):
            ability, content, status, expected = PATTERNS[name]
            response = client.post(f"{url}/judges/j/{ability}", json=content)
            assert response.status_code == status, (name, response.text)
            assert expected is None or same(found(response), expected), name

        list(pool.map(ask, order))
        assert client.get(url + "/health").status_code == 200
    assert max(judge.sizes) > 200  # what arrived together went through together


def test_one_connection_serves_good_and_bad_requests_in_turn(serve):  # noqa: F811
    served = serve(build_app({"j": Reading()}))
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    for name, (ability, content, status, _) in PATTERNS.items():
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/judges/j/{ability}", json.dumps(content), headers)
        response = connection.getresponse()
        response.read()
        assert response.status == status, name
    connection.close()


@pytest.mark.parametrize("leave", ["in the header", "in the body", "before the answer"])
def test_clients_that_leave_take_nobody_with_them(serve, leave):  # noqa: F811
    batching = BatchingJudge(Reading(), most_rows=4)
    served = serve(build_app({"j": batching}))
    content = json.dumps(asked((1, "gone"))).encode()
    head = f"POST /judges/j/answer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n"
    sent = {"in the header": head.encode(), "in the body": f"{head}\r\n".encode() + content[:50]}
    whole = f"{head}\r\n".encode() + content

    def gone(_):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(sent.get(leave, whole))

    def stays(at):
        return httpx.post(f"{served.url}/judges/j/answer", json=asked((at % 7, f"s{at}")), timeout=60)

    with ThreadPoolExecutor(16) as pool:
        leaving = [pool.submit(gone, at) for at in range(12)]
        answered = list(pool.map(stays, range(24)))
        [one.result() for one in leaving]
    assert [found(one) for one in answered] == [[f"s{at}:{at % 7}"] for at in range(24)]
    until = time.monotonic() + 20
    while batching.counts.waiting and time.monotonic() < until:
        time.sleep(0.05)
    assert batching.counts.waiting == 0 and batching.counts.calls["failed"] == 0


def test_a_deadline_in_the_past_abstains_with_the_reason(serve):  # noqa: F811
    remote = RemoteJudge(serve(build_app({"j": Reading()})).url, deadline=-1.0)
    found = remote.rate([tiny_models.picture()], ["a"])
    assert found.probabilities.isnan().all() and "no answer within -1 s" in found.reasons[0]


def test_judges_of_one_server_do_not_wait_for_each_other(serve):  # noqa: F811
    held, free = threading.Event(), Reading()

    class Held(Reading):
        def answer(self, images, questions):
            held.wait(30)
            return ["held"] * len(questions)

    replicas = BatchingJudge([Reading(), Reading()])
    served = serve(build_app({"held": Held(), "free": free, "two": replicas}))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, f"{served.url}/judges/held/answer", json=asked((1, "h")), timeout=60)
        for name in ("free", "two"):
            assert found(httpx.post(f"{served.url}/judges/{name}/answer", json=asked((2, "f")), timeout=20)) == ["f:2"]
        assert httpx.get(served.url + "/health", timeout=5).json()["judges"].keys() == {"held", "free", "two"}
        held.set()
        assert found(waiting.result(30)) == ["held"]


def test_a_full_queue_is_waited_for_and_nothing_is_lost(serve):  # noqa: F811
    batching = BatchingJudge(Reading(), most_rows=2, most_waiting=2)
    remote = RemoteJudge(serve(build_app({"j": batching})).url, deadline=60.0)
    shades = list(range(12))
    with ThreadPoolExecutor(12) as pool:
        answered = list(pool.map(lambda at: remote.answer([Image.new("RGB", (8, 8), (at,) * 3)], [f"q{at}"]), shades))
    assert answered == [[f"q{at}:{at}"] for at in shades]
    assert batching.counts.calls["refused"] > 0 and batching.counts.calls["answered"] == 12


COUNTERS = ("rows_total", "batches_total", "calls_total", "seconds_total")
TYPES = dict.fromkeys(COUNTERS, "counter") | {
    "queue_rows": "gauge", "queue_rows_max": "gauge", "batch_rows": "histogram",
}  # fmt: skip


def test_metrics_have_these_names_types_and_values(serve):  # noqa: F811
    batching = BatchingJudge(Reading())
    served = serve(build_app({"j": batching}))
    httpx.post(f"{served.url}/judges/j/answer", json=asked((1, "a"), (2, "b"), (3, "c")))
    httpx.post(f"{served.url}/judges/j/answer", json=asked((1, "poison")))
    text = httpx.get(served.url + "/metrics").text
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert types == {f"rewards_judge_{name}": kind for name, kind in TYPES.items()}
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['rewards_judge_rows_total{judge="j"}'] == "4"
    assert values['rewards_judge_batches_total{judge="j"}'] == "2"
    assert values['rewards_judge_calls_total{judge="j",outcome="answered"}'] == "1"
    assert values['rewards_judge_calls_total{judge="j",outcome="failed"}'] == "1"
    assert (
        values['rewards_judge_queue_rows{judge="j"}'] == "0"
        and values['rewards_judge_queue_rows_max{judge="j"}'] == "3"
    )
    assert values['rewards_judge_batch_rows_bucket{judge="j",le="1"}'] == "1"
    assert values['rewards_judge_batch_rows_bucket{judge="j",le="4"}'] == "2"
    assert float(values['rewards_judge_seconds_total{judge="j",phase="judging"}']) >= 0.04
