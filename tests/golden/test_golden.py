"""The present code gives the frozen results.

How closely depends on where it runs. With the versions and the arithmetic of the recording (`made.json`) every value is
equal to 1e-6, to 1e-5 where a decoder judges. Elsewhere processors and libraries round otherwise, and each update
carries that on: there scores are equal to 1e-5, and of a training what stands before its first update to 1e-4; what
follows is not compared.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.inputs import write_inputs
from tests.golden.record import HERE, environment, material, new_folder, rounded
from tests.golden.runs import SCORES, TRAININGS

SAME = 1e-6
SCORES_ELSEWHERE = 1e-5
# A decoder judge now takes several pictures in one pass, which rounds otherwise than one picture at a time did: its
# scores are equal to 1e-5, and so is what is computed from them.
BY_A_DECODER = 1e-5
DECODER = {
    *("rerank_texts", "best_of_n_texts", "score_harmonic", "harmonic_python"),
    *("grpo", "grpo_per_criterion", "rloo", "ppo"),
}
TRAINING_ELSEWHERE = 1e-4
# Values of another size than 1, and how much wider or closer they are compared. A picture is kept in 8 bits: a change
# of 1e-7 in one of its values may move that by a whole step.
SIZE = {"picture_mean": 10.0, "approximate_kl": 1e-3, "kl_to_base": 1e-2}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "inputs"
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def as_recorded() -> bool:
    """Whether the same program gives the same bits here as where the results were recorded."""
    made = json.loads((HERE / "made.json").read_text("utf-8"))
    here = environment()
    differing = [name for name in here if here[name] != made[name]]
    if differing:
        warnings.warn(
            f"other {' and '.join(differing)} than at the recording: compared with the wider bounds", stacklevel=1
        )
    return not differing


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_models_and_inputs_are_those_of_the_recording(inputs):
    made = json.loads((HERE / "made.json").read_text("utf-8"))
    here = material(inputs)
    assert here["inputs"] == made["inputs"], "the shapes world draws, describes or asks otherwise than at the recording"
    changed = [name for name, digest in made["models"].items() if here["models"][name] != digest]
    assert not changed, f"other weights of {', '.join(changed)}: keep those of the recording (MODELS in runs.py)"


@pytest.mark.parametrize("name", SCORES)
def test_scores_and_rankings_are_the_frozen_ones(name, inputs, as_recorded, tmp_path):
    found = rounded(SCORES[name](inputs, new_folder(tmp_path, "out")))
    assert_equal(frozen(name), found, same(name) if as_recorded else SCORES_ELSEWHERE, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_curves_and_evaluations_of_trainings_are_the_frozen_ones(name, inputs, as_recorded, tmp_path):
    expected, found = frozen(name), rounded(TRAININGS[name](inputs, new_folder(tmp_path, "out")))
    if as_recorded:
        assert_equal(expected, found, same(name), name)
    else:
        assert_equal(before_first_update(expected), before_first_update(found), TRAINING_ELSEWHERE, name)


def test_a_changed_value_is_found_wherever_it_stands():
    expected = {"order": [0, 1], "overall": [0.5, None], "picture_mean": [0.25], "approximate_kl": 4e-9}
    near = {"order": [0, 1], "overall": [0.5 + 9e-7, None], "picture_mean": [0.250009], "approximate_kl": 4.5e-9}
    assert_equal(expected, {**near, "new": 1}, SAME)
    for changed in (
        {**expected, "order": [1, 0]},
        {**expected, "overall": [0.5 + 2e-6, None]},
        {**expected, "overall": [0.5, 0.0]},
        {**expected, "overall": [0.5]},
        {**expected, "picture_mean": [0.2502]},
        {**expected, "approximate_kl": 8e-9},
        {"order": [0, 1], "overall": [0.5, None]},
    ):
        with pytest.raises(AssertionError):
            assert_equal(expected, changed, SAME)


def same(name: str) -> float:
    return BY_A_DECODER if name in DECODER else SAME


def frozen(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def before_first_update(values: dict[str, Any]) -> dict[str, Any]:
    """What a training run computed with the weights it started from."""
    first = values["training"][0]
    return {
        "training": {name: first[name] for name in ("reward", "audit", "gap") if name in first},
        "evaluation": values["evaluations"][0],
        "samples": [sample for sample in values["samples"] if sample["phase"] == "before"],
    }


def assert_equal(expected: Any, found: Any, bound: float, where: str = "", size: float = 1.0) -> None:
    """Every frozen value is there and equal: numbers to `bound` (absolute or relative), all else exactly.

    What the present code gives beside the frozen values is not looked at.
    """
    if isinstance(expected, dict):
        assert isinstance(found, dict), f"{where}: {found!r} instead of {sorted(expected)}"
        assert expected.keys() <= found.keys(), f"{where}: no {sorted(expected.keys() - found.keys())}"
        for name, value in expected.items():
            assert_equal(value, found[name], bound, f"{where}/{name}", SIZE.get(name, size))
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), f"{where}: {found!r} instead of {expected!r}"
        for place, value in enumerate(expected):
            assert_equal(value, found[place], bound, f"{where}/{place}", size)
    elif _is_number(expected) and _is_number(found):
        # Rankings round to 6 digits on disk: the last one may flip, and is not exact in binary.
        same = math.isclose(expected, found, rel_tol=bound, abs_tol=1.01 * bound * size)
        assert same, f"{where}: {found} instead of {expected}"
    else:
        assert found == expected, f"{where}: {found!r} instead of {expected!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
