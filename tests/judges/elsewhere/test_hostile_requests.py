"""`rewards serve` against requests that nobody means well: bounded in memory and time, and healthy meanwhile."""

import base64
import gc
import io
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import httpx
import numpy as np
import pytest
from PIL import Image

from rewards.judges.base import Judge
from rewards.judges.batching import BatchingJudge
from rewards.judges.elsewhere import bodies
from rewards.judges.elsewhere.bodies import Limits
from rewards.judges.elsewhere.client import RemoteJudge
from rewards.judges.elsewhere.server import build_app
from tests.judges.elsewhere.test_serve import serve  # noqa: F401 - a fixture


class Answering(Judge):
    """Answers with the size of the picture, after `seconds`."""

    name = "sizes"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[int] = []

    def answer(self, images, questions):
        time.sleep(self.seconds)
        self.batches.append(len(questions))
        return ["x".join(map(str, image.pixels.size)) for image in images]


def png(width: int, height: int) -> str:
    """A flat picture: hardly any bytes, as many pixels as one likes."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def body(**pictures: str) -> dict:
    return {"pictures": pictures, "rows": [{"pictures": [key], "prompt": "how large?"} for key in pictures]}


def answers(response: httpx.Response) -> list:
    assert response.status_code == 200, response.text
    return [row["answer"] for row in response.json()["rows"]]


def test_a_picture_with_too_many_pixels_abstains_before_it_is_decoded(serve):  # noqa: F811
    served = serve(build_app({"j": Answering()}))
    start = time.monotonic()
    found = httpx.post(served.url + "/judges/j/answer", json=body(a=png(9400, 9400), b=png(64, 48)), timeout=60)
    assert answers(found) == [None, "64x48"] and time.monotonic() - start < 3
    assert "9400x9400 pixels; this server takes 16,777,216" in found.json()["rows"][0]["reason"]


def test_requests_about_one_picture_hold_it_once(serve):  # noqa: F811
    judge, seen = Answering(1.0), []
    judge.answer = lambda images, questions: seen.extend(images) or Answering.answer(judge, images, questions)
    served, strict = serve(build_app({"j": judge})), serve(build_app({"j": judge}, limits=Limits(pixels=100)))
    content = body(a=png(64, 48), b=png(48, 64))

    def ask(url: str) -> list:
        return answers(httpx.post(url + "/judges/j/answer", json=content, timeout=60))

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(ask, served.url) for _ in range(3)]
        time.sleep(0.5)
        assert pool.submit(ask, strict.url).result() == [None, None]  # a picture that is held is measured as any other
    assert [one.result() for one in found] == [["64x48", "48x64"]] * 3
    assert len({id(image) for image in seen}) == 2 and len(seen) == 6
    digests = [blake2b(text.encode()).digest() for text in content["pictures"].values()]
    assert all(digest in bodies._held for digest in digests)
    seen.clear()
    until = time.monotonic() + 10
    while any(digest in bodies._held for digest in digests):
        assert time.monotonic() < until
        gc.collect()
        time.sleep(0.05)


def test_a_request_with_too_many_pixels_is_refused(serve):  # noqa: F811
    served = serve(build_app({"j": Answering()}, limits=Limits(all_pixels=100_000)))
    several = {f"p{at}": png(200, 200) for at in range(4)}
    refused = httpx.post(served.url + "/judges/j/answer", json=body(**several))
    assert refused.status_code == 413 and "100,000 pixels in all" in refused.text
    assert answers(httpx.post(served.url + "/judges/j/answer", json=body(a=png(200, 200)))) == ["200x200"]


def test_clients_send_pictures_in_parts_that_a_server_takes(serve):  # noqa: F811
    judge = Answering()
    remote = RemoteJudge(serve(build_app({"j": judge})).url)
    pictures = [Image.new("L", (3000, 3000), at) for at in range(9)]
    assert remote.answer(pictures, ["how large?"] * 9) == ["3000x3000"] * 9
    assert len(judge.batches) >= 3


def test_health_never_waits(serve):  # noqa: F811
    served = serve(build_app({"j": Answering(6.0)}))
    content = body(a=png(64, 48))
    threads = [
        threading.Thread(target=lambda: httpx.post(served.url + "/judges/j/answer", json=content, timeout=60))
        for _ in range(60)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    for path in ("/health", "/metrics"):
        start = time.monotonic()
        assert httpx.get(served.url + path, timeout=10).status_code == 200
        assert time.monotonic() - start < 3
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415), ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415), ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403), ({"Host": "evil.example"}, 403), ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Content-Type": "application/json; charset=utf-8"}, 200), ({"Host": "localhost"}, 200), ({}, 200),
        ({"Content-Type": ""}, 415),
    ],
)  # fmt: skip
def test_pages_of_other_sites_are_refused(serve, headers, status):  # noqa: F811
    served = serve(build_app({"j": Answering()}))
    headers = {"Content-Type": "application/json"} | headers
    found = httpx.post(served.url + "/judges/j/answer", content=json.dumps(body(a=png(9, 9))), headers=headers)
    assert found.status_code == status
    if "Host" in headers or "Origin" in headers:
        assert httpx.get(served.url + "/health", headers=headers).status_code == status


def test_a_body_without_a_type_is_not_taken_for_json(serve):  # noqa: F811
    """A page in a browser may send such a body (a Blob) to any site unasked."""
    served = serve(build_app({"j": Answering()}))
    found = httpx.post(served.url + "/judges/j/answer", content=json.dumps(body(a=png(9, 9))))
    assert found.status_code == 415 and "got none" in found.text


def test_chunked_requests_are_counted_while_they_arrive(serve):  # noqa: F811
    """They do not say how long they are: each counted as nothing, and any number of them was held at a time."""
    served = serve(build_app({"j": Answering()}, limits=Limits(bytes=1_000_000)))
    url, json_type = served.url + "/judges/j/answer", {"Content-Type": "application/json"}
    content = json.dumps(body(a=png(9, 9))).encode()
    assert answers(httpx.post(url, content=iter([content[:50], content[50:]]), headers=json_type)) == ["9x9"]
    too_large = httpx.post(url, content=iter([b" " * 600_000] * 2), headers=json_type)
    assert too_large.status_code == 413 and "larger than 1000000 bytes" in too_large.text
    go_on, statuses = threading.Event(), []

    def slow():
        yield b" " * 900_000
        go_on.wait(20)
        yield content

    threads = [
        threading.Thread(
            target=lambda: statuses.append(httpx.post(url, content=slow(), headers=json_type, timeout=60).status_code)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    third = httpx.post(url, content=iter([b" " * 300_000]), headers=json_type)
    go_on.set()
    for thread in threads:
        thread.join()
    assert third.status_code == 503 and int(third.headers["retry-after"]) >= 1
    assert statuses == [200, 200]
    assert answers(httpx.post(url, content=iter([content]), headers=json_type)) == ["9x9"]  # all was let go of


def test_a_full_queue_sends_away_and_says_when_to_come_back(serve):  # noqa: F811
    judge = Answering(0.5)
    served = serve(build_app({"j": BatchingJudge(judge, most_waiting=2, most_rows=1)}))
    content, found = body(a=png(9, 9)), []
    threads = [
        threading.Thread(
            target=lambda: found.append(httpx.post(served.url + "/judges/j/answer", json=content, timeout=60))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    refused = [response for response in found if response.status_code == 503]
    assert 0 < len(refused) < 8 and all(int(response.headers["retry-after"]) >= 1 for response in refused)
    assert all(answers(response) == ["9x9"] for response in found if response.status_code != 503)
    remote = RemoteJudge(served.url)
    patient = [threading.Thread(target=lambda: found.append(remote.answer([Image.new("L", (9, 9))], ["?"])))] * 1
    for thread in patient:
        thread.start()
        thread.join()
    assert found[-1] == ["9x9"]


def test_a_client_that_leaves_is_not_judged(serve):  # noqa: F811
    judge = Answering(0.8)
    batching = BatchingJudge(judge, most_rows=1)
    served = serve(build_app({"j": batching}))
    content = body(a=png(9, 9))
    threads = [threading.Thread(target=lambda: httpx.post(served.url + "/judges/j/answer", json=content, timeout=60))]
    threads[0].start()
    time.sleep(0.2)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(served.url + "/judges/j/answer", json=content, timeout=0.1)
    threads[0].join()
    time.sleep(0.4)
    assert batching.counts.calls["cancelled"] == 1 and judge.batches == [1]


def test_metrics_tell_what_happened(serve):  # noqa: F811
    served = serve(build_app({"j": Answering()}))
    for _ in range(3):
        httpx.post(served.url + "/judges/j/answer", json=body(a=png(9, 9), b=png(8, 8)))
    text = httpx.get(served.url + "/metrics").text
    assert 'rewards_judge_rows_total{judge="j"} 6' in text
    assert 'rewards_judge_calls_total{judge="j",outcome="answered"} 3' in text
    assert 'rewards_judge_batch_rows_bucket{judge="j",le="2"} 3' in text
    assert 'rewards_judge_batch_rows_sum{judge="j"} 6' in text and 'le="+Inf"} 3' in text


HOSTILE = """
import sys
import uvicorn
from rewards.judges.elsewhere.server import build_app
from tests.judges.elsewhere.test_hostile_requests import Answering
uvicorn.run(build_app({"j": Answering()}), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


def peak(process: subprocess.Popen) -> int:
    """The most memory that a process ever had, in bytes."""
    status = open(f"/proc/{process.pid}/status", encoding="ascii").read()  # noqa: SIM115
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def hostile_pictures(kind: str) -> dict[str, str]:
    """About 64 MB of a request, as bad as the limits let it be."""
    if kind == "many pixels":
        return dict.fromkeys((f"p{at}" for at in range(3000)), png(9400, 9400))
    if kind == "as many as allowed":
        buffer = io.BytesIO()
        Image.fromarray(np.zeros((4096, 4096), dtype=np.uint16)).save(buffer, "PNG")
        deep = base64.b64encode(buffer.getvalue()).decode()
        buffer = io.BytesIO()
        Image.new("LA", (4096, 4096)).save(buffer, "PNG")
        clear = base64.b64encode(buffer.getvalue()).decode()
        return {"a": clear, "b": deep}
    if kind == "noise":
        noise = Image.fromarray(np.random.RandomState(0).randint(0, 255, (2048, 2048, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        noise.save(buffer, "PNG")
        return {f"p{at}": base64.b64encode(buffer.getvalue()).decode() for at in range(3)}
    if kind == "text that unpacks":
        chunk = b"zTXt" + b"a\0\0" + zlib.compress(b"x" * 60_000_000, 9)
        raw = base64.b64decode(png(64, 64))
        packed = (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        one = base64.b64encode(raw[:33] + packed + raw[33:]).decode()
        return {f"p{at}": one for at in range(200)}
    return {f"p{at}": "A" * 63_000 for at in range(1000)}


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_64_megabytes_of_hostile_pictures_stay_below_a_gigabyte():
    from tests.judges.elsewhere.test_serve import free_port

    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", HOSTILE, str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                httpx.get(url + "/health", timeout=1)
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        for kind in ("many pixels", "as many as allowed", "noise", "text that unpacks", "no pictures"):
            found = httpx.post(url + "/judges/j/answer", json=body(**hostile_pictures(kind)), timeout=300)
            assert found.status_code in (200, 413, 422), (kind, found.text)
            assert peak(process) < 1_000_000_000, kind
            assert httpx.get(url + "/health", timeout=2).status_code == 200
    finally:
        process.kill()
        process.wait()
