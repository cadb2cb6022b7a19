"""The one glossary of metrics: every key that a trainer or a reward logs is explained."""

import re
from pathlib import Path

import pytest

import rewards
from rewards.runs.glossary import METRICS, describe
from rewards.runs.trl_keys import NAMES

SOURCE = Path(rewards.__file__).parent / "trainers"


def logged_keys():
    """Keys that stand in the trainers' code, and those that TRL's are renamed to."""
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    return sorted({*re.findall(r'"((?:policy|train|samples|time|audit)/[a-z_]+)"', text), *NAMES.values()})


def test_every_key_of_the_trainers_is_explained():
    keys = logged_keys()
    assert len(keys) > 30 and "policy/ratio" in keys
    assert [key for key in keys if describe(key) is None] == []


@pytest.mark.parametrize(
    "key, entry",
    [
        ("rewards/TIFA/animal/human/mean", "rewards/<reward>/<part>/mean"),
        ("rewards/TIFA/overall/mean", "rewards/<reward>/overall/mean"),
        ("eval/audit/oracle/color/standard_error", "eval/audit/*"),
        ("rewards/H/fluency/weight", "rewards/<reward>/<part>/weight"),
    ],
)
def test_families(key, entry):
    assert describe(key).key == entry


def test_entries_are_sentences_and_their_keys_unique():
    assert len({metric.key for metric in METRICS}) == len(METRICS)
    assert all(metric.meaning.endswith(".") for metric in METRICS)
