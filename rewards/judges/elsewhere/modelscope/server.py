"""A server for TIFA's modelscope answerers (mplug-large, ofa-large), in one file for an environment of its own.

It speaks the protocol of `rewards serve` (see README.md beside it) and needs Python >= 3.8, modelscope and Pillow only.

    python server.py mplug-large --port 8009
"""

# ruff: noqa: UP006, UP035, UP045 - Python 3.8 has neither dict[...] at run time nor X | None

from __future__ import annotations

import argparse
import base64
import binascii
import hmac
import io
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Optional, Tuple

PROTOCOL = 1
CHECKPOINTS = {
    "mplug-large": "damo/mplug_visual-question-answering_coco_large_en",
    "ofa-large": "damo/ofa_visual-question-answering_pretrain_large_en",
}
LARGEST_REQUEST = 64_000_000
LARGEST_PICTURE = 89_478_485  # pixels; Pillow's own limit

Answer = Callable[[Any, str], str]  # a PIL picture and a question -> the answer


def load(name: str) -> Answer:
    """The modelscope pipeline of a model, called as the official TIFA scorer calls it (tifascore/vqa_models.py)."""
    from modelscope.outputs import OutputKeys
    from modelscope.pipelines import pipeline
    from modelscope.utils.constant import Tasks

    checkpoint = CHECKPOINTS[name]
    if name == "mplug-large":
        mplug = pipeline(Tasks.visual_question_answering, model=checkpoint)
        return lambda picture, question: str(mplug({"image": picture, "question": question})["text"])
    from modelscope.preprocessors.multi_modal import OfaPreprocessor

    ofa = pipeline(
        Tasks.visual_question_answering, model=checkpoint, preprocessor=OfaPreprocessor(model_dir=checkpoint)
    )
    return lambda picture, question: str(ofa({"image": picture, "text": question.lower()})[OutputKeys.TEXT][0])


def answer_rows(body: Dict[str, Any], answer: Answer) -> Dict[str, object]:
    """The answers of a request; None for a row whose picture cannot be read or that the model fails on."""
    from PIL import Image

    rows: List[Dict[str, Optional[str]]] = []
    for row in body["rows"]:
        try:
            encoded = base64.b64decode(body["pictures"][row["pictures"][0]], validate=True)
            picture = Image.open(io.BytesIO(encoded))
            if picture.width * picture.height > LARGEST_PICTURE:
                raise ValueError("the picture is too large")
            rows.append({"answer": answer(picture.convert("RGB"), str(row["prompt"])).strip()})
        except Exception as error:  # old pipelines raise anything; a row that fails abstains
            print(f"a row abstains: {type(error).__name__}: {error}", flush=True)
            rows.append({"answer": None})
    return {"rows": rows}


def make_server(name: str, answer: Answer, host: str, port: int, token: Optional[str]) -> ThreadingHTTPServer:
    """The HTTP server; `serve_forever()` runs it."""
    identity: Dict[str, object] = {"name": name, "revision": None, "dtype": None, "preprocessing": "modelscope"}
    described: Dict[str, object] = {name: {"name": name, "identity": identity, "prompts": None}}
    health = {"status": "ok", "protocol": PROTOCOL, "judges": described}
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(*((200, health) if self._allowed() and self.path == "/health" else self._refusal()))

        def do_POST(self) -> None:
            told = self.headers.get("Content-Length", "")
            length = int(told) if told.isascii() and told.isdigit() else None
            if length is None or length > LARGEST_REQUEST:
                self.close_connection = True
                refused = (411, "a Content-Length is needed") if length is None else (413, "the request is too large")
                self._reply(refused[0], {"detail": refused[1]})
                return
            content = self.rfile.read(length)
            self._reply(*(self._work(content) if self._allowed() else self._refusal()))

        def _work(self, content: bytes) -> Tuple[int, Dict[str, object]]:
            if self.path in (f"/judges/{name}/rate", f"/judges/{name}/choose", f"/judges/{name}/explain"):
                return 200, {"unsupported": f"judge {name!r} answers in words only"}
            if self.path != f"/judges/{name}/answer":
                return self._refusal()
            try:
                body = json.loads(content)
                with one_at_a_time:
                    return 200, answer_rows(body, answer)
            except (ValueError, KeyError, TypeError, IndexError, binascii.Error) as error:
                return 422, {"detail": f"not a request: {type(error).__name__}: {error}"}

        def _allowed(self) -> bool:
            sent = self.headers.get("Authorization", "")
            return token is None or hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())

        def _refusal(self) -> Tuple[int, Dict[str, object]]:
            return (404, {"detail": "not found"}) if self._allowed() else (401, {"detail": "a bearer token is needed"})

        def _reply(self, status: int, content: Dict[str, object]) -> None:
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *args: object) -> None:
            pass

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Load the model named on the command line and answer requests until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(CHECKPOINTS))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8009)
    options = parser.parse_args()
    token = os.environ.get("REWARDS_JUDGE_TOKEN") or None
    if token is None and options.host not in ("127.0.0.1", "localhost", "::1"):
        parser.error("set REWARDS_JUDGE_TOKEN before listening beyond this machine")
    server = make_server(options.model, load(options.model), options.host, options.port, token)
    print(f"serving {options.model} at http://{options.host}:{options.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
