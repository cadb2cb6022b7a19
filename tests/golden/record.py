"""Make the frozen results again.

    OMP_NUM_THREADS=1 python -m tests.golden.record            # all of them, about two minutes on one core
    OMP_NUM_THREADS=1 python -m tests.golden.record ppo tifa_bench

Each run is done twice, and nothing is written unless both give the same values, which are kept to 9 digits. The files
here were made by this command with the library of commit 67357a0; `made.json` holds the versions, and a fingerprint of
the arithmetic. Since then only the standard errors and intervals of ddpo.json were changed: over meanings, not prompts.
Recording again replaces the reference: do it only for a change of behaviour that is meant, and say so in CHANGELOG.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.nn import functional

from tests.golden.inputs import write_inputs
from tests.golden.runs import MODELS, SCORES, TRAININGS

HERE = Path(__file__).parent
PACKAGES = ("torch", "torchvision", "transformers", "diffusers", "trl", "peft", "accelerate", "numpy", "pillow")
COMMIT = "67357a0"


def main(names: list[str]) -> None:
    """Record the named runs, or all."""
    torch.set_num_threads(1)
    runs = {**SCORES, **TRAININGS}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs"
        write_inputs(inputs)
        for name in names or runs:
            first, second = (rounded(runs[name](inputs, new_folder(folder, f"{name}-{k}"))) for k in (1, 2))
            if first != second:
                raise SystemExit(f"{name}: two runs on this machine differ; nothing was written")
            text = json.dumps(first, separators=(",", ":"), allow_nan=False)
            (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{name}: {len(text)} bytes")
        made_of = material(inputs)
    command = "OMP_NUM_THREADS=1 python -m tests.golden.record"
    made = {"command": command, "commit": COMMIT, "cpu": _processor(), **environment(), **made_of}
    (HERE / "made.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def environment() -> dict[str, Any]:
    """What must be equal for the same program to give the same bits: the versions, and how this machine computes."""
    return {"versions": {name: version(name) for name in PACKAGES}, "arithmetic": arithmetic()}


def material(inputs: Path) -> dict[str, Any]:
    """What the runs are made of, whatever computes them: hashes of the models' weights, and of the inputs' contents."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(inputs.rglob("*")):
        if path.suffix in (".json", ".jsonl"):
            digest.update(path.read_bytes())
        elif path.suffix == ".png":
            digest.update(Image.open(path).tobytes())
    models = {name: hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest() for name, path in MODELS.items()}
    return {"models": models, "inputs": digest.hexdigest()}


def arithmetic() -> str:
    """A hash of fixed computations with one thread: it differs where a processor rounds otherwise than another.

    Matrix products and convolutions of several sizes, attention, the functions that networks use, and a gradient.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        random = torch.Generator().manual_seed(0)
        digest = hashlib.blake2b(digest_size=16)
        for size in (7, 64, 200, 768):
            a, b = (torch.randn(size, size, generator=random).requires_grad_() for _ in range(2))
            c = functional.softmax(a @ b / size**0.5, -1) @ functional.silu(b)
            d = functional.layer_norm(functional.gelu(c, approximate="tanh") + torch.exp(-a * a), (size,))
            (d * functional.gelu(d)).mean().backward()
            for tensor in (c, d, a.grad, b.grad):
                digest.update(tensor.detach().numpy().tobytes())
        picture, kernel = torch.randn(4, 16, 32, 32, generator=random), torch.randn(24, 16, 3, 3, generator=random)
        query = torch.randn(2, 4, 33, 16, generator=random)
        drawn = functional.group_norm(functional.conv2d(picture, kernel, padding=1), 4)
        for tensor in (drawn, functional.scaled_dot_product_attention(query, query, query)):
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()
    finally:
        torch.set_num_threads(threads)


def rounded(value: Any) -> Any:
    """Numbers to 9 significant digits, NaN as None: plain JSON values."""
    if isinstance(value, dict):
        return {str(name): rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def new_folder(parent: str | Path, name: str) -> Path:
    """An empty folder."""
    folder = Path(parent) / name
    folder.mkdir()
    return folder


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main(sys.argv[1:])
