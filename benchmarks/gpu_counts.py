"""What judges would ask of a GPU, counted without one: forwards, reads of the device by the host, the host's own time.

    python benchmarks/gpu_counts.py                      # about five minutes on one core
    git worktree add /tmp/old 67357a0 && python benchmarks/gpu_counts.py --old /tmp/old    # the same of older code
    ... --texts 16                                       # quicker; times are a text

Real classes with the published models' numbers of layers, at small widths with random weights: counts and host time do
not depend on width. Reads are counted on a pretended device (`rewards/preflight/pretend.py`): `ours` are those by lines
of this library, `theirs` those by transformers. Host time is CPU time of the calling thread outside the towers'
forwards, when a GPU has nothing new to do, and beside it that of other threads, which prepare pictures meanwhile. The
busy share of a GPU is arithmetic from FLOPs of a 7B judge on an H200 at 60% of its peak, as an upper bound: the host's
work of a text (towers' launches included, from the time that the towers take at width 64) beside the GPU's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import judges_blip_base
import judges_models
import numpy as np
import torch
import transformers as tf
from PIL import Image

from rewards import TIFA, HarmonicEval, Question, QuestionStore, load_judge

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "gpu_counts.json"


def pretend() -> Any:
    """The pretended device of this checkout, whichever package is measured."""
    spec = importlib.util.spec_from_file_location("pretend", HERE.parents[1] / "rewards" / "preflight" / "pretend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def llava(folder: Path) -> str:
    """LLaVA-1.5-7B's 24 and 32 layers, 576 tokens a picture."""
    model, processor = judges_models.llava(576)
    vision, text = model.config.vision_config, model.config.text_config
    for config, layers in ((vision, 24), (text, 32)):
        config.update(narrow(layers))
    return saved(tf.LlavaForConditionalGeneration(model.config), processor, folder / "llava")


def qwen(folder: Path) -> str:
    """Qwen2.5-VL-7B's 32 and 28 layers, 391 tokens a picture of 640 x 480."""
    model, processor = judges_models.qwen2_5_vl(400)
    vision, text = model.config.vision_config, model.config.text_config
    text.update(narrow(28) | {"layer_types": ["full_attention"] * 28})
    text.rope_parameters = {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0}
    whole = [7, 15, 23, 31]
    vision.update({"depth": 32, "hidden_size": 64, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64,
                   "fullatt_block_indexes": whole})  # fmt: skip
    return saved(tf.Qwen2_5_VLForConditionalGeneration(model.config), processor, folder / "qwen")


def blip(folder: Path) -> str:
    """BLIP-large for VQA: 24 layers of vision, twice 12 of text."""
    Image.new("RGB", (384, 384)).save(folder / "one.png")
    path = judges_blip_base.save(folder, [str(folder / "one.png")], judges_blip_base.QUESTIONS[:1])
    config: Any = tf.BlipConfig.from_pretrained(path)
    config.vision_config.update({**narrow(24), "image_size": 384})
    config.text_config.update({**narrow(12), "encoder_hidden_size": 64})
    return saved(tf.BlipForQuestionAnswering(config), tf.BlipProcessor.from_pretrained(path), folder / "blip-large")


def narrow(layers: int) -> dict[str, int]:
    return {"num_hidden_layers": layers, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 32}  # fmt: skip


def saved(model: Any, processor: Any, path: Path) -> str:
    model.eval().save_pretrained(path)
    processor.save_pretrained(path)
    return str(path)


@contextmanager
def towers_watched(towers: dict[str, Any]) -> Any:
    """Forwards, rows and seconds of each tower."""
    seen: dict[str, Counter[str]] = {name: Counter() for name in towers}
    begun: dict[str, float] = {}

    def before(name: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            first = next(v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor))
            seen[name].update(forwards=1, rows=first.shape[0])
            begun[name] = time.thread_time()

        return hook

    def after(name: str) -> Callable[..., None]:
        return lambda *_: seen[name].update({"seconds": time.thread_time() - begun[name]})

    handles = [tower.register_forward_pre_hook(before(name), with_kwargs=True) for name, tower in towers.items()]
    handles += [tower.register_forward_hook(after(name)) for name, tower in towers.items()]
    yield seen
    for handle in handles:
        handle.remove()


def counted(path: str, make: Callable[[Any], Any], rows: tuple[Sequence[Any], Sequence[str]], towers: Any) -> Any:
    """Host time of a call on the CPU, the better of two, then reads of the same call on the pretended device."""
    judge: Any = load_judge(path)
    with suppress(ImportError):  # older code has no rows of whole trees
        from rewards.judges.decoders.engine import ROW_TOKENS, ROW_TOKENS_ELSEWHERE

        ROW_TOKENS["cpu"] = ROW_TOKENS_ELSEWHERE
    reward, best = make(judge), None
    for _ in range(3):
        with towers_watched(towers(judge.model)) as seen:
            start, whole = time.thread_time(), time.process_time()
            reward.score(*rows)
            spent, every = time.thread_time() - start, time.process_time() - whole
        towers_spent = sum(tower["seconds"] for tower in seen.values())
        each = 1e3 / len(rows[1])
        host = (spent - towers_spent) * each
        if best is None or host < best["host_ms_a_text"]:
            best = {"host_ms_a_text": host, "beside_ms_a_text": (every - spent) * each,
                    "towers_ms_a_text": towers_spent * each,
                    **{name: dict(forwards=t["forwards"], rows=t["rows"]) for name, t in seen.items()}}  # fmt: skip
    device = pretend()
    package = str(Path(sys.modules["rewards"].__file__ or "").resolve().parent)
    device._LIBRARY = package + "/"
    with device.pretended() as reads:
        device.place(judge)
        reward.score(*rows)
    ours = sum(count for caller, count in reads.inside.items() if "site-packages" not in caller
               and not caller.startswith(("transformers/", "diffusers/", "torch/")))  # fmt: skip
    return {**(best or {}), "reads": reads.total, "reads_ours": ours, "reads_by": dict(reads.inside.most_common(6))}


def measure(count: int, only: str) -> dict[str, Any]:
    random = np.random.RandomState(0)

    def pictures(number: int) -> list[Any]:
        return [Image.fromarray(random.randint(0, 255, (480, 640, 3), dtype=np.uint8)) for _ in range(number)]

    texts = [f"{judges_models.CAPTIONS[at % 8]} {at}" for at in range(count)]
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, build in (("LLaVA", llava), ("Qwen2.5-VL", qwen)):
            for each in (1, 8):
                (part := folder / f"{label}-{each}").mkdir()  # a judge is resident under its path
                path = build(part)
                shown = [one for one in pictures(count // each) for _ in range(each)]
                key = f"{label}, {count // each} pictures x {each} texts"
                if only not in key:
                    continue
                results[key] = counted(path, lambda judge: HarmonicEval(judge, min_rating_mass=0), (shown, texts),
                                       decoder_towers)  # fmt: skip
                print(key, results[key], file=sys.stderr, flush=True)
        key = f"TIFA, BLIP-large, {count} pictures x 6 questions"
        if only not in key:
            return results
        store = QuestionStore(folder / "q.sqlite")
        asked = [Question(f"is there a {c} circle?", ("yes", "no", "red"), "yes", "x", "object", p, p)
                 for p in texts for c in ("red", "blue", "green", "big", "small", "yellow")]  # fmt: skip
        store.add(asked)
        rows = (pictures(count), texts)
        results[key] = counted(blip(folder), lambda judge: TIFA(judge, store, answer="choices"), rows, answerer_towers)
    return results


def decoder_towers(model: Any) -> dict[str, Any]:
    vision = getattr(model.model, "vision_tower", None)
    return {"vision": vision if vision is not None else model.model.visual, "language": model.model.language_model}


def answerer_towers(model: Any) -> dict[str, Any]:
    return {"vision": model.vision_model, "text": model.text_encoder, "decoder": model.text_decoder}


def table(now: dict[str, Any], old: dict[str, Any] | None) -> str:
    lines = [
        "| | vision forwards | LM forwards | device read by us / by transformers | host ms a text | beside it |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for label, one in now.items():
        before = (old or {}).get(label)
        cells = [
            text + (f" (was {was})" if before else "") for text, was in zip(cells_of(one), cells_of(before or one))
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cells_of(one: dict[str, Any]) -> list[str]:
    language = one.get("language") or one["text"]
    ours = one["reads_ours"]
    return [
        str(one["vision"]["forwards"]),
        str(language["forwards"]),
        f"{ours} / {one['reads'] - ours}",
        f"{one['host_ms_a_text']:.1f}",
        f"{one['beside_ms_a_text']:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a checkout of older code, measured in a process of its own")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--only", default="", help="part of a row's name, such as 'x 1 texts'")
    parser.add_argument("--raw", action="store_true", help="print the measurements as JSON and write nothing")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    tf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    now = measure(options.texts, options.only)
    if options.raw:
        print(json.dumps(now))
        return
    old = None
    if options.old:
        command = [sys.executable, str(HERE), "--raw", "--texts", str(options.texts), "--only", options.only]
        paths = {**os.environ, "PYTHONPATH": str(options.old.resolve())}
        old = json.loads(subprocess.run(command, env=paths, check=True, stdout=subprocess.PIPE).stdout)
    asked = f"--old {options.old} --texts {options.texts} --only '{options.only}'"
    about = {"command": f"python benchmarks/gpu_counts.py {asked}",
             "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__, "transformers": tf.__version__}  # fmt: skip
    RESULTS.write_text(json.dumps({**about, "now": now, "old": old}, indent=1) + "\n")
    print(table(now, old))


if __name__ == "__main__":
    main()
