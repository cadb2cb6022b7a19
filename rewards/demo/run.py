"""The three uses one after the other: DiffusionNFT with TIFA, GRPO with HarmonicEval, best-of-8; then one table and
one page.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from rewards.demo.best_of_8 import rerank_captions
from rewards.errors import InputError
from rewards.report.page import write_report
from rewards.runs.config import load_config
from rewards.runs.files import Row, write_whole
from rewards.tables import Table
from rewards.trainers.diffusion.run import run_diffusion
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig

_HERE = Path(__file__).parent
_INDENT = " "  # marks a part of the row above
_HEADER = ("", "before", "after", "gain", "95% interval")


def run_demo(out: Path, seed: int = 0, overwrite: bool = False) -> Row:
    """Run the demo and write everything under ``out``.

    Args:
        out: the folder; holds ``nft``, ``grpo``, ``best_of_8``, ``summary.json``, ``curves`` and ``report.html``
        afterwards. What was written before an interruption stays readable.
        seed: of training; the held-out prompts and their noise are always the same.
        overwrite: replace an earlier demo in ``out``.

    Returns:
        The summary, as in ``summary.json``.

    Raises:
        InputError: ``out`` holds something already.
        OSError: a file cannot be written.
    """
    started = time.perf_counter()
    if out.exists() and any(out.iterdir()):
        if not overwrite:
            raise InputError(f"{out} is not empty; choose another folder with --out or replace it with --overwrite")
        _remove_demo(out)
    out.mkdir(parents=True, exist_ok=True)
    print("1/3  DiffusionNFT with TIFA: a Stable Diffusion pipeline learns to draw what was asked", flush=True)
    nft = load_config(DiffusionRunConfig, _HERE / "nft.yaml", {"output_dir": str(out / "nft"), "seed": seed})
    summary: Row = {"seed": seed, "nft": run_diffusion(nft)}
    _save(out, summary, started)
    print("2/3  GRPO with HarmonicEval: a vision-language model learns to describe what is there", flush=True)
    grpo = load_config(LanguageRunConfig, _HERE / "grpo.yaml", {"output_dir": str(out / "grpo"), "seed": seed})
    summary["grpo"] = run_language(grpo)
    _save(out, summary, started)
    print("3/3  Best of 8: the untrained captioner, eight captions a picture, the rater chooses", flush=True)
    summary["best_of_8"] = rerank_captions(out / "best_of_8", pictures=96, seed=seed)
    _save(out, summary, started)
    # The page has the gains of both runs from their own files; what it cannot know stands at its head.
    tables = [_guidance_table(summary["nft"]), _best_of_8_table(summary["best_of_8"])]
    write_report([out / "nft", out / "grpo"], out, title="rewards demo", tables=tables)
    return summary


def _remove_demo(out: Path) -> None:
    """Delete an earlier demo and nothing else: ``out`` may be a folder that holds other things too."""
    for name in ("nft", "grpo", "best_of_8", "curves"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in ("summary.json", "report.html"):
        (out / name).unlink(missing_ok=True)


def _save(out: Path, summary: dict[str, object], started: float) -> None:
    summary["seconds"] = round(time.perf_counter() - started, 1)
    write_whole(out / "summary.json", json.dumps(summary, indent=1) + "\n")


def demo_tables(summary: Row) -> list[Table]:
    """The demo's results: held-out prompts, the same noise before and after."""
    return [
        _nft_table(summary["nft"]),
        _guidance_table(summary["nft"]),
        _grpo_table(summary["grpo"]),
        _best_of_8_table(summary["best_of_8"]),
    ]


def _nft_table(summary: Row) -> Table:
    rows = []
    for parts, title in ((summary["reward"]["TIFA"], "TIFA, judge"), (summary["audits"]["oracle"], "TIFA, oracle")):
        for part in ("overall", *(part for part in parts if part != "overall")):
            v = parts[part]
            label = title if part == "overall" else f"{_INDENT}{part}"
            rows.append(_row(label, v["before"], v["after"], v["gain"], v["low"], v["high"]))
    note = f"Share of right answers on {summary['prompts']} held-out prompts; only the judge trains."
    return Table("DiffusionNFT with TIFA", _HEADER, rows, note)


def _guidance_table(summary: Row) -> Table:
    rows = []
    for row in summary["baselines"]:
        for key, judge in (("", "judge"), ("_audit", "oracle")):
            base, trained = row[f"base{key}"], row[f"trained{key}"]
            name = f"guidance {row['guidance_scale']:g} instead of 1, {judge}"
            rows.append((name, f"{base:.3f}", f"{trained:.3f}", f"{trained - base:+.3f}"))
    note = "Guidance helps without training, at twice the work a picture."
    return Table("DiffusionNFT beside guidance", ("", "untrained", "trained", "gain"), rows, note)


def _grpo_table(summary: Row) -> Table:
    rows = []
    for name, title in (("HarmonicEval", "HarmonicEval, judge"), ("caption_truth_reward", "truth")):
        parts = (summary["reward"] | summary["audits"])[name]
        for part in ("overall", *(p for p in parts if p != "overall")):
            v = parts[part]
            label = title if part == "overall" else f"{_INDENT}{part}"
            rows.append(_row(label, v["before"], v["after"], v["gain"], v["low"], v["high"]))
    return Table(
        "GRPO with HarmonicEval",
        _HEADER,
        rows,
        "Ratings from 1 to 5; the truth is computed from each scene and never trains.",
    )


def _best_of_8_table(curves: Row) -> Table:
    rows = []
    for name, title in (("overall", "HarmonicEval, judge"), ("truth", "truth")):
        first, last = curves["curves"][name][0], curves["curves"][name][-1]
        rows.append((title, f"{first['value']:.3f}", f"{last['value']:.3f}", f"{last['value'] - first['value']:+.3f}"))
    return Table(
        "Best of 8",
        ("", "one caption", "best of 8", "gain"),
        rows,
        f"{curves['items']} held-out pictures, no training.",
    )


def _row(title: str, before: float, after: float, gain: float, low: float, high: float) -> tuple[str, ...]:
    return title, f"{before:.3f}", f"{after:.3f}", f"{gain:+.3f}", f"{low:+.3f} to {high:+.3f}"


def format_tables(tables: list[Table]) -> str:
    """Tables as plain text for a terminal."""
    return "\n" + "\n\n".join(table.text() for table in tables)
