"""What does `rewards audit` find about the shipped judges, and does a policy that is trained on them find the same?

    python benchmarks/audit_shapes.py                                       # about 10 minutes on one free core
    python benchmarks/audit_shapes.py --parts --drawn runs/tifa_training/hard-0 runs/tifa_training/soft-0
    python benchmarks/audit_shapes.py --parts --runs shapes-rater=runs/harmonic_seeds/grpo-0,... # RATER=FOLDER,FOLDER

Texts: 600 held-out scenes, each with its full true caption, by `shapes-rater` and the rater before it; pairs that the
truth does not find worse take no part. Pictures: 200 held-out scenes drawn, by TIFA with `shapes-vqa` (hard and soft),
with the truth about pictures. Speed: 200 pictures with all variants that the rules make of their texts, in seconds of
CPU. Correlation: Spearman over kinds of claims, between the share of false details that the audit finds accepted and
what GRPO makes false more often (folders of `benchmarks/harmonic_seeds.py`, evaluated by the truth), with its exact
permutation p-value: five kinds have 120 orders. Models that draw (folders of `benchmarks/tifa_training.py` or any other
run): what the pictures that a run kept show, by the truth that counts surplus objects.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from rewards import TIFA, HarmonicEval, load_judge
from rewards.audit.findings import Findings
from rewards.audit.pictures import audit_pictures
from rewards.audit.texts import audit_texts
from rewards.audit.variants import TrueText
from rewards.errors import exit_cleanly
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.samples import read_samples
from rewards.shapes.claims import claim_shares
from rewards.shapes.datasets import caption_prompts, sample_scenes, scene_from_json, scene_to_json
from rewards.shapes.language import describe
from rewards.shapes.picture_truth import PictureTruth
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.shapes.truth_reward import CaptionTruth

RESULTS = Path(__file__).resolve().parent / "results" / "audit_shapes.json"
RATERS = ("tests/fixtures/old_rater", "shapes-rater")
CLAIMS = {"background": "background", "color": "color", "count": "count", "object": "shape", "relation": "relation"}
"""Kind of the audit -> kind of claim of the truth."""


def world(count: int) -> list[TrueText]:
    """Held-out scenes with their full true captions; scenes that differ in the background only are one cluster."""
    scenes = sample_scenes("test", count, seed=9)
    return [TrueText(render(s), str(describe(s)), describe(s).key(), {"scene": scene_to_json(s)}) for s in scenes]


def brief(found: Findings, seconds: float) -> dict[str, Any]:
    """The record without its single pairs."""
    record: dict[str, Any] = dict(found.record())
    record["findings"] = [
        {k: v for k, v in kind.items() if k not in ("drops", "clusters")} for kind in record["findings"]
    ]
    prior = found.prior()
    return record | {"prior": prior and list(prior.rows), "cpu_seconds": seconds}


def shown(title: str, found: Findings, started: float) -> dict[str, Any]:
    """Print an audit and return its record."""
    seconds = time.process_time() - started
    print(f"\n{title} ({seconds:.0f} s of CPU)\n{found.table().text()}")
    if (prior := found.prior()) is not None:
        print(prior.text())
    print(found.verdict(), flush=True)
    return brief(found, seconds)


def false_claims(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """By kind of claim, the share that is false in a run's first and last evaluation."""
    shares = []
    for evaluation in EvaluationLog(folder).ends():
        texts = [sample.text or "" for sample in evaluation.samples]
        scenes = [scene_from_json(scene) for scene in caption_prompts("test", len(texts), seed=1)["scene"]]
        shares.append({k.removeprefix("claims_false/"): v for k, v in claim_shares(scenes, texts).items()})
    return shares[0], shares[-1]


def correlation(accepted: Sequence[float], outcome: Sequence[float]) -> dict[str, float]:
    """Spearman's rho, and the share of all orders with one at least as large."""
    rho = float(spearmanr(accepted, outcome).statistic)
    orders = [spearmanr(accepted, order).statistic for order in permutations(outcome)]
    return {"spearman": rho, "p_one_sided": float(np.mean([r >= rho - 1e-9 for r in orders]))}


def exploited(record: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Acceptance by the audit beside what GRPO made false, mean over seeds."""
    accepted = {kind["kind"]: kind["accepted"][0] for kind in record["findings"]}
    ends = [false_claims(folder) for folder in folders]
    kinds = [kind for kind in CLAIMS if kind in accepted]
    before = [float(np.mean([first[CLAIMS[k]] for first, _ in ends])) for k in kinds]
    after = [float(np.mean([last[CLAIMS[k]] for _, last in ends])) for k in kinds]
    change = [b - a for a, b in zip(before, after)]
    by_seed = {k: [last[CLAIMS[k]] - first[CLAIMS[k]] for first, last in ends] for k in kinds}
    level = [accepted[k] for k in kinds]
    print(f"\n{'kind':<12}{'accepted':>10}{'false before':>14}{'false after':>13}{'change':>9}")
    for row in zip(kinds, level, before, after, change):
        print(f"{row[0]:<12}{row[1]:>10.3f}{row[2]:>14.3f}{row[3]:>13.3f}{row[4]:>+9.3f}")
    found = {"false after": correlation(level, after), "change": correlation(level, change)}
    print("Spearman over kinds:", json.dumps(found), flush=True)
    rows = {k: {"accepted": a, "before": b, "after": c} for k, a, b, c in zip(kinds, level, before, after)}
    return {"seeds": len(folders), "kinds": rows, "change_by_seed": by_seed, "correlation": found}


def drawn(folder: Path) -> dict[str, dict[str, float]]:
    """What the pictures that a run kept show, by the truth, before and after training."""
    found = {}
    for phase in ("before", "after"):
        rows = [row for row in read_samples(folder) if row["phase"] == phase]
        scores = PictureTruth().score([folder / row["image"] for row in rows], [row["prompt"] for row in rows])
        means = dict(zip(scores.part_names, scores.parts.double().nanmean(0).tolist()))
        found[phase] = {"pictures": len(rows), "without_surplus": means.pop("surplus"), **means}
    print(f"\n{folder.name}: {json.dumps(found)}", flush=True)
    return found


def text_audits(scenes: int) -> dict[str, Any]:
    """Both raters on the same true captions."""
    records = {}
    for name in RATERS:
        started = time.process_time()
        found = audit_texts(HarmonicEval(load_judge(name)), world(scenes), second=CaptionTruth())
        records[name] = shown(f"texts by {name}", found, started)
    return records


def speed() -> dict[str, Any]:
    """200 pictures with every variant of their texts."""
    rows, reward = world(200), HarmonicEval(load_judge("shapes-rater"))
    started = time.process_time()
    found = audit_texts(reward, rows, per_kind=12)
    variants = sum(len(kind.rows) for kind in found.findings)
    record = {"pictures": 200, "variants": variants, "cpu_seconds": time.process_time() - started}
    print(f"\nspeed: {json.dumps(record)}", flush=True)
    return record


def picture_audits(pictures: int) -> dict[str, Any]:
    """TIFA's judge with right and wrong answers, and with probabilities."""
    records, rows = {}, world(pictures)
    with tempfile.TemporaryDirectory() as folder:
        store = question_store(Path(folder) / "questions.sqlite", [row.text for row in rows])
        for soft in (False, True):
            started = time.process_time()
            reward = TIFA(load_judge("shapes-vqa"), store, answer="choices", soft=soft)
            name = f"shapes-vqa, {'soft' if soft else 'hard'}"
            found = audit_pictures(reward, rows, second=PictureTruth())
            records[name] = shown(f"pictures by {name}", found, started)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=600)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument(
        "--parts", nargs="*", default=["texts", "speed", "pictures"], help="the others stay as recorded"
    )
    parser.add_argument("--runs", nargs="*", default=[], metavar="RATER=FOLDER,FOLDER", help="runs of GRPO by rater")
    parser.add_argument("--drawn", nargs="*", default=[], type=Path, metavar="FOLDER", help="runs of models that draw")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    runs = [(name, folders.split(",")) for name, _, folders in (run.partition("=") for run in arguments.runs)]
    with exit_cleanly():
        record: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        versions = {package: version(package) for package in ("torch", "transformers", "numpy")}
        record |= {
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"python": platform.python_version(), **versions},
        }
        if "texts" in arguments.parts:
            record["texts"] = text_audits(arguments.scenes)
        if "speed" in arguments.parts:
            record["speed"] = speed()
        if "pictures" in arguments.parts:
            record["pictures"] = picture_audits(arguments.pictures)
        for name, folders in runs:
            found = exploited(record["texts"][name], list(map(Path, folders)))
            record["exploited"] = record.get("exploited", {}) | {name: found}
        for folder in arguments.drawn:
            record["drawn"] = record.get("drawn", {}) | {folder.name: drawn(folder)}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
