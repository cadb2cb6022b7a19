"""All methods for models that draw, at equal CPU seconds of training: which learns most by the truth?

    python benchmarks/methods_at_equal_cpu.py --seeds 0 1 2 3 4 --cpu-seconds 200

Every method trains the packaged Stable Diffusion with its own `configs/*_shapes.yaml`. First its pace is measured: CPU
seconds of an epoch (drawing, judging, updating; no evaluation, no loading) on one thread, the methods taking turns. A
budget of CPU seconds is then so many whole epochs, the learning rate falling to 0 with them by a cosine, so that 200,
400 and 800 are runs of their own; two stages share the budget evenly. So a run depends on the pace and its seed alone,
not on what else a machine does meanwhile. No audit stops a run. A seed has training and held-out prompts of its own, on
which no setting was chosen, and all methods of a seed share them and the evaluation's noise.

The table: held-out means by the judge (hard TIFA) and by the oracle, their gap, the oracle's counting, and judge and
oracle with guidance 2; below it gains by the oracle over the untrained model and over DDPO, paired by prompt, with 95%
intervals that treat prompts of one meaning, over all seeds, as one cluster, and the lowest and highest seed. Beside the
file of results, one of lines keeps every run: what it holds is not made again, so that one table can grow on several
days and machines; it says what is missing. `--seeds` with nothing behind it only prints.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

import numpy as np

from rewards.errors import exit_cleanly
from rewards.runs.config import load_config
from rewards.runs.files import finite_or_none, write_json
from rewards.runs.intervals import mean_interval
from rewards.trainers.diffusion.evaluation import Evaluation
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.run import new_trainer
from rewards.trainers.diffusion.settings import DiffusionRunConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results" / "methods_equal_cpu.json"
STAGES = {"nft_reward_gradient": ("nft", "reward_gradient")}
METHODS = ("ddpo", "nft", "awm", "reward_gradient", *STAGES)
"""Names of `configs/*_shapes.yaml`. Flow-GRPO needs a pipeline of flow matching, and does not train a UNet."""
UNTRAINED = "untrained"
SEEDS = (0, 1, 2, 3, 4)
BUDGETS = (200, 400, 800)
PROMPT_SEED = 3000
"""Seed s draws the prompts of `prompt_seed` 3000 + s; settings were chosen on others (0, 101, 500)."""
GUIDANCE = (1.0, 2.0)
ROUNDS = 4
"""Epochs by which a pace is measured; the first, which warms up, does not count."""


class Run(TypedDict):
    """A finished run: `held_out` is guidance -> judge, oracle, counting -> a number a prompt (None: not judged)."""

    method: str
    seed: int
    budget: int
    cpu_seconds: float
    epochs: int
    pictures: int
    clusters: list[str]
    held_out: dict[str, dict[str, list[float | None]]]


Pace = dict[str, float]


def measured_pace(out: Path) -> Pace:
    """Method -> CPU seconds of an epoch: the mean over rounds in which the methods take turns."""
    single = [method for method in METHODS if method not in STAGES]
    trainers = {method: _trainer(method, 0, out / "pace" / method) for method in single}
    seconds: dict[str, list[float]] = {method: [] for method in single}
    for _ in range(ROUNDS):
        for method, trainer in trainers.items():
            seconds[method].append(_epoch(trainer))
    return {method: round(float(np.mean(each[1:])), 2) for method, each in seconds.items()}


def _pace(out: Path, results: Path) -> Pace:
    """The pace of the results if there are any, else of the folder, measured once."""
    if results.exists():
        return json.loads(results.read_text())["pace"]
    kept = out / "pace.json"
    if not kept.exists():
        write_json(kept, measured_pace(out))
    return json.loads(kept.read_text())


def epochs_of(method: str, budget: int, pace: Pace) -> list[int]:
    """Epochs of each stage that a budget of CPU seconds buys; at least one."""
    stages = STAGES.get(method, (method,))
    return [max(1, round(budget / len(stages) / pace[stage])) for stage in stages]


def run_once(method: str, seed: int, budget: int, pace: Pace, out: Path) -> None:
    """Train and evaluate, unless the folder holds the run."""
    folder = out / _name(method, budget, seed)
    if (folder / "run.json").exists():
        return
    trained = method != UNTRAINED
    epochs = epochs_of(method, budget, pace) if trained else []
    trainer = _trainer(method, seed, folder, epochs)
    used = sum(_epoch(trainer) for _ in range(sum(epochs)))
    held_out = {f"{scale:g}": scores(trainer.evaluate(guidance_scale=scale)) for scale in GUIDANCE}
    clusters = [str(extra["cluster"]) for extra in trainer._eval_set.metadata] if trainer._eval_set else []
    per_epoch = [stage.args.samples_per_epoch() for stage in trainer.stages]
    run: Run = {
        "method": method,
        "seed": seed,
        "budget": budget,
        "cpu_seconds": round(used, 1),
        "epochs": sum(epochs),
        "pictures": sum(count * each for count, each in zip(epochs, per_epoch, strict=False)),
        "clusters": clusters,
        "held_out": held_out,
    }
    write_json(folder / "run.json", finite_or_none(run))
    print(f"{folder.name}: {used:.0f} CPU s, {sum(epochs)} epochs, {_means(run)}", flush=True)


def _name(method: str, budget: int, seed: int) -> str:
    return f"{UNTRAINED}-{seed}" if method == UNTRAINED else f"{method}-{budget}-{seed}"


def _trainer(method: str, seed: int, folder: Path, epochs: Sequence[int] = ()) -> DiffusionTrainer:
    """A method's own, with so many epochs of each stage; without any, as many as its config says."""
    settings: dict[str, object] = {
        "prompt_seed": PROMPT_SEED + seed,
        "seed": seed,
        "trainer.audit_freq": 0,
        "output_dir": str(folder),
        "overwrite": True,
    }
    path = ROOT / "configs" / f"{METHODS[0] if method == UNTRAINED else method}_shapes.yaml"
    if len(epochs) == 1:
        settings["trainer.num_epochs"] = epochs[0]
    config = load_config(DiffusionRunConfig, path, settings)
    stages = [stage | {"num_epochs": count} for stage, count in zip(config.stages, epochs, strict=False)]
    return new_trainer(dataclasses.replace(config, stages=stages))


def _epoch(trainer: DiffusionTrainer) -> float:
    """One epoch, without what a run does between epochs; its CPU seconds."""
    if trainer.stages.at(trainer.step) is not trainer.method:
        trainer._enter_stage(trainer.step)
    started = time.process_time()
    metrics = trainer._epoch(trainer.step)
    seconds = time.process_time() - started
    trainer.step += 1
    trainer._log(metrics)
    return seconds


def scores(evaluation: Evaluation) -> dict[str, list[float | None]]:
    """A number a prompt: judge, oracle, and the oracle's share of right counts."""
    assert evaluation.audited is not None
    oracle = evaluation.audited
    columns = {
        "judge": evaluation.judged.overall,
        "oracle": oracle.overall,
        "counting": oracle.parts[:, oracle.part_names.index("counting")],
    }
    return {
        name: [round(value, 4) if math.isfinite(value) else None for value in column.tolist()]
        for name, column in columns.items()
    }


def values(run: Run, name: str, guidance: str = "1") -> np.ndarray:
    """A column of a run, (P,), NaN where not judged."""
    return np.array(run["held_out"][guidance][name], dtype=float)


def _means(run: Run) -> str:
    return ", ".join(
        f"guidance {guidance} {name} {np.nanmean(values(run, name, guidance)):.3f}"
        for guidance in run["held_out"]
        for name in ("judge", "oracle", "counting")
    )


def read_runs(out: Path, results: Path) -> list[Run]:
    """All finished runs of a folder and of a file of results, by budget, method and seed."""
    kept = results.with_suffix(".jsonl")
    texts = kept.read_text().splitlines() if kept.exists() else []
    runs: list[Run] = [json.loads(text) for text in [*texts, *(p.read_text() for p in sorted(out.glob("*/run.json")))]]
    order = [UNTRAINED, *METHODS]
    once = {_name(run["method"], run["budget"], run["seed"]): run for run in runs}
    return sorted(once.values(), key=lambda run: (run["budget"], order.index(run["method"]), run["seed"]))


Line = dict[str, object]
Pairs = Sequence[tuple[Run, Run]]


def gain(pairs: Pairs, name: str) -> Line:
    """Mean gain from the second to the first run of each pair, its clustered interval, and each pair's own gain."""
    differences = [values(after, name) - values(before, name) for after, before in pairs]
    clusters = [cluster for after, _ in pairs for cluster in after["clusters"]]
    estimate = mean_interval(np.concatenate(differences), clusters)
    seeds = [round(float(np.nanmean(each)), 4) for each in differences]
    return {"gain": estimate.value, "low": estimate.low, "high": estimate.high, "seeds": seeds}


def lines(runs: Sequence[Run]) -> list[Line]:
    """A line a method and budget: means over seeds, gains over the untrained model and over DDPO of the same budget."""
    by: dict[tuple[str, int], dict[int, Run]] = {}
    for run in runs:
        by.setdefault((run["method"], run["budget"]), {})[run["seed"]] = run
    untrained = by.get((UNTRAINED, 0), {})
    made: list[Line] = []
    for (method, budget), seeds in by.items():
        line: Line = {"method": method, "budget": budget, "runs": sorted(seeds)}
        line["cpu_seconds"] = float(np.mean([run["cpu_seconds"] for run in seeds.values()]))
        for guidance in ("1", "2"):
            for name in ("judge", "oracle", "counting"):
                column = [float(np.nanmean(values(run, name, guidance))) for run in seeds.values()]
                line[f"{name}, guidance {guidance}"] = float(np.mean(column))
        for title, others in (("untrained", untrained), ("ddpo", by.get(("ddpo", budget), {}))):
            pairs = [(seeds[seed], others[seed]) for seed in sorted(seeds) if seed in others]
            if pairs and method not in (UNTRAINED, title):
                for name in ("oracle", "counting"):
                    line[f"{name} over {title}"] = gain(pairs, name)
        made.append(line)
    return made


def show(table: Sequence[Line]) -> None:
    """Print both tables, and what is missing."""
    columns = [f"{name}, guidance {guidance}" for guidance in ("1", "2") for name in ("judge", "oracle", "counting")]
    print(f"\n{'':<20}{'budget':>7}{'used':>7}{'runs':>6}{'judge':>8}{'oracle':>8}{'count.':>8}{'gap':>7}", end="")
    print(f"{'guidance 2: judge':>20}{'oracle':>8}{'count.':>8}")
    for line in table:
        judge, oracle, counting, *guided = (_number(line[column]) for column in columns)
        seeds = line["runs"]
        print(f"{line['method']:<20}{line['budget']:>7}{line['cpu_seconds']:>7.0f}", end="")
        print(f"{len(seeds) if isinstance(seeds, list) else 0:>6}{judge:>8.3f}{oracle:>8.3f}{counting:>8.3f}", end="")
        print(f"{judge - oracle:>7.3f}{guided[0]:>20.3f}{guided[1]:>8.3f}{guided[2]:>8.3f}")
    for title in (f"oracle over {UNTRAINED}", f"counting over {UNTRAINED}", "oracle over ddpo"):
        print(f"\n{title}")
        for line in table:
            found = line.get(title)
            if isinstance(found, Mapping):
                each = ", ".join(f"{value:+.3f}" for value in found["seeds"])
                interval = f"[{found['low']:+.3f}, {found['high']:+.3f}]"
                print(f"  {line['method']:<20}{line['budget']:>5}{found['gain']:>+8.3f} {interval}  seeds: {each}")
    for text in missing(table):
        print(f"not run: {text}")


def missing(table: Sequence[Line]) -> list[str]:
    """What the table of five seeds and three budgets lacks."""
    ran = {(line["method"], line["budget"]): line["runs"] for line in table}
    lacking = []
    for budget in BUDGETS:
        for method in METHODS:
            have = ran.get((method, budget), [])
            seeds = [seed for seed in SEEDS if not isinstance(have, list) or seed not in have]
            if seeds:
                lacking.append(f"{method} at {budget} CPU s, seeds {', '.join(map(str, seeds))}")
    return [*lacking, "flow_grpo: it needs a pipeline of flow matching"]


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--cpu-seconds", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--out", type=Path, default=Path("runs/methods_equal_cpu"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        out, results = arguments.out, arguments.results
        pace = _pace(out, results)
        print("CPU seconds an epoch:", ", ".join(f"{method} {seconds:.1f}" for method, seconds in pace.items()))
        for budget in arguments.cpu_seconds:
            for seed in arguments.seeds:  # seed by seed: a table of what there is stays balanced
                have = {_name(run["method"], run["budget"], run["seed"]) for run in read_runs(out, results)}
                for method, of in [(UNTRAINED, 0), *((method, budget) for method in arguments.methods)]:
                    if _name(method, of, seed) not in have:
                        run_once(method, seed, of, pace, out)
        runs = read_runs(out, results)
        show(table := lines(runs))
        packages = ("torch", "diffusers", "transformers", "peft", "numpy")
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"python": platform.python_version()} | {package: version(package) for package in packages},
            "pace": pace,
            "missing": missing(table),
            "table": table,
        }
        write_json(results, finite_or_none(record))
        results.with_suffix(".jsonl").write_text("".join(f"{json.dumps(run)}\n" for run in runs))


if __name__ == "__main__":
    main()
