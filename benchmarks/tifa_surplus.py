"""What asking for surplus objects does to TIFA in the shapes world: agreement with the oracle, and what is noticed.

    python benchmarks/tifa_surplus.py                                 # about 2 minutes on one core

Pictures are drawn by the shipped generator for held-out prompts, without and with guidance. With and without the
questions on surplus objects (`rewards.shapes.questions.questions_for(..., surplus=True)`):

- `agreement`: the share of questions on which judge and oracle agree, and of the surplus questions alone;
- `mean`, `gap`: the judge's mean score, and how far it is above the oracle's (what a policy can widen);
- `noticed`: of the pictures with a surplus object, the share that fails a question for which that object alone can be
  the reason, one about how many there are, by the oracle and by the judge;
- `tau-b`: Kendall's, between the judge's soft score and the truth about pictures, which counts surplus objects.

Intervals are 95%, over meanings of prompts drawn again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from clustered import Rows, intervals
from judges_other_generator import CASES, SEEN, draw
from scipy.stats import kendalltau
from tifa_none_of_these import EXACT

from rewards.build import open_judge
from rewards.errors import exit_cleanly
from rewards.shapes.language import meaning
from rewards.shapes.oracle_tifa import OracleTIFA
from rewards.shapes.picture_truth import PictureTruth
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.tifa.answers import TIFAScores
from rewards.tifa.questions.surplus import SURPLUS
from rewards.tifa.reward import TIFA

RESULTS = Path(__file__).resolve().parent / "results" / "tifa_surplus.json"
COUNTS = ("counting", SURPLUS)
"""Types of questions that an object too many can make wrong."""


def measured(judged: TIFAScores, truth: TIFAScores, surplus: bool) -> dict[str, np.ndarray]:
    """One row a picture, sums over its questions, so that pictures can be drawn again.

    Args:
        judged: soft, by the judge.
        truth: by the oracle.
        surplus: count the questions on surplus objects, too.
    """
    names = ("questions", "agree", "surplus questions", "surplus agree", "judge notices", "oracle notices")
    table = {name: np.zeros(len(judged)) for name in (*names, "judge", "oracle", "soft")}
    for found, true in zip(judged.answers, truth.answers, strict=True):
        row, kind = found.image, found.question.element_type
        if kind == SURPLUS and not surplus:
            continue
        values = [1.0, found.right == true.right, kind == SURPLUS, kind == SURPLUS and found.right == true.right]
        values += [kind in COUNTS and not found.right, kind in COUNTS and not true.right]
        for name, value in zip((*names, "judge", "oracle", "soft"), [*values, found.right, true.right, found.score]):
            table[name][row] += float(value or 0)
    for name in ("judge", "oracle", "soft"):
        table[name] /= table["questions"]
    noticed = {f"{name} notices": table[f"{name} notices"] > 0 for name in ("judge", "oracle")}
    return table | noticed | {"surplus": truth.means["surplus"].double().numpy()}


FIGURES: dict[str, Callable[[Rows], float]] = {
    "agreement": lambda rows: rows["agree"].sum() / rows["questions"].sum(),
    "agreement, surplus questions": lambda rows: rows["surplus agree"].sum() / rows["surplus questions"].sum(),
    "mean": lambda rows: rows["judge"].mean(),
    "gap": lambda rows: (rows["judge"] - rows["oracle"]).mean(),
    "noticed by the oracle": lambda rows: (rows["oracle notices"] * rows["surplus"]).sum() / rows["surplus"].sum(),
    "noticed by the judge": lambda rows: (rows["judge notices"] * rows["surplus"]).sum() / rows["surplus"].sum(),
    "tau-b": lambda rows: float(kendalltau(rows["soft"], rows["truth"]).statistic),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly(), tempfile.TemporaryDirectory() as folder:
        prompts = generator_prompts("test", arguments.prompts, seed=1)
        judge, oracle = open_judge("shapes-vqa"), open_judge("shapes-oracle")
        record: dict[str, object] = {}
        store = question_store(Path(folder) / "questions.sqlite", prompts, surplus=True)
        for guidance, case in ((1, f"{SEEN}, guidance 1"), (2, f"{SEEN}, guidance 2")):
            pictures = draw(*CASES[case], prompts)
            truth = OracleTIFA(oracle, store, matcher=EXACT).score(pictures, prompts)
            judged = TIFA(judge, store, soft=True).score(pictures, prompts)
            for surplus in (False, True):
                rows = measured(judged, truth, surplus)
                rows |= {"truth": PictureTruth().score(pictures, prompts).overall.double().numpy()}
                figures = {name: figure for name, figure in FIGURES.items() if surplus or SURPLUS not in name}
                found = intervals(figures, rows, [meaning(prompt) for prompt in prompts])
                title = f"guidance {guidance}, {'with' if surplus else 'without'} surplus questions"
                record[title] = found | {
                    "questions": int(rows["questions"].sum()),
                    "pictures with surplus": int(rows["surplus"].sum()),
                }
                print(f"\n{title}: {rows['questions'].sum():.0f} questions, "
                      f"{rows['surplus'].sum():.0f} of {len(prompts)} pictures with a surplus object")  # fmt: skip
                for name, (value, low, high) in found.items():
                    print(f"  {name:<30}{value:>7.3f} [{low:.3f}, {high:.3f}]", flush=True)
        made = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {package: version(package) for package in ("torch", "diffusers", "transformers", "numpy")},
            "prompts": len(prompts),
            "results": record,
        }
        arguments.results.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
