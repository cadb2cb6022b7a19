import math
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from PIL import Image

from rewards.build import RewardSettings, build_reward
from rewards.errors import InputError
from rewards.judges.base import Judge, UnsupportedAbility
from rewards.rubric.aggregation import certain_weights, contrast_weights
from rewards.rubric.reward import Rubric
from tests import tiny_models

RED, BLUE = Image.new("RGB", (8, 8), (200, 10, 10)), Image.new("RGB", (8, 8), (10, 10, 200))


class Table(Judge):
    """Chooses by a table: (text, item) -> unnormalised probabilities of the choices; None where it fails."""

    name = "table"

    def __init__(self, table: dict[tuple[str, str], tuple[float, ...] | None]) -> None:
        self.table = table
        self.calls: list[list[str]] = []

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        self.calls.append(list(questions))
        found = []
        for question, offered in zip(questions, choices, strict=True):
            (row,) = [v for (text, item), v in self.table.items() if f"Text: {text}\n" in question and item in question]
            found.append(torch.full((len(offered),), torch.nan) if row is None else torch.tensor(row).log())
        return found


ITEMS = [
    {"item": "names the colour"},
    {"item": "says how many", "kind": "optional", "choices": ["no", "partly", "yes"]},
    {"item": "invents something", "kind": "pitfall", "label": "invention"},
]
JUDGE = Table({
    ("good", "colour"): (0.1, 0.3), ("good", "many"): (0.1, 0.2, 0.1), ("good", "invents"): (0.4, 0.1),
    ("bad", "colour"): (0.3, 0.1), ("bad", "many"): (0.1, 0.1, 0.2), ("bad", "invents"): (0.1, 0.3),
})  # fmt: skip


def test_the_weighted_share_of_the_checklist() -> None:
    scores = Rubric(JUDGE, ITEMS).score([RED, RED], ["good", "bad"])
    # good: yes, partly, no invention; bad: no, yes, an invention
    assert scores.overall.tolist() == pytest.approx([(1 + 0.3 * 0.5 + 0.9) / 2.2, 0.3 / 2.2])
    assert scores.part_names == ("essential", "optional", "invention")
    assert scores.parts.tolist() == [[1.0, 0.5, 1.0], [0.0, 1.0, 0.0]] and scores.reasons == [None, None]
    assert scores.details[0]["items"][2] == {
        "item": "invents something", "kind": "pitfall", "label": "invention", "weight": 0.9, "choice": "no",
        "score": 1.0,
    }  # fmt: skip
    assert scores.metrics("Rubric")["rewards/Rubric/invention/mean"] == 0.5


def test_soft_scores_are_expected_values() -> None:
    scores = Rubric(JUDGE, ITEMS, soft=True).score([RED], ["good"])
    assert scores.overall.item() == pytest.approx((0.75 + 0.3 * 0.5 + 0.9 * 0.8) / 2.2)


def test_checklists_of_rows_go_to_the_judge_in_one_call() -> None:
    judge = Table(JUDGE.table)
    scores = Rubric(judge).score([RED, BLUE], ["good", "bad"], rubric=[["names the colour"], ITEMS[1:]])
    assert len(judge.calls) == 1 and len(judge.calls[0]) == 3
    assert scores.overall.tolist() == pytest.approx([1.0, 0.3 / 1.2])
    assert scores.part_names == ("essential", "important", "optional", "pitfall", "invention")
    assert scores.counts.tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 1]]


def test_a_failed_verdict_abstains_and_so_does_what_cannot_be_used() -> None:
    judge = Table(
        JUDGE.table | {("torn", "colour"): None, ("torn", "many"): (1.0, 0.0, 0.0), ("torn", "invents"): (1, 0)}
    )
    texts = ["torn", "good", None, "good", "good"]
    images = [RED, RED, RED, None, RED]
    scores = Rubric(judge).score(images, texts, rubric=[ITEMS, ITEMS, ITEMS, ITEMS, "nothing"])
    assert scores.overall.isnan().tolist() == [True, False, True, True, True]
    assert scores.reasons[0] == "text 0: the judge could not decide 'names the colour'" and scores.reasons[1] is None
    for row, reason in ((2, "not a string"), (3, "no image"), (4, "as JSON")):
        assert f"text {row}: " in (scores.reasons[row] or "") and reason in (scores.reasons[row] or "")
    weighted = Rubric(judge, ITEMS, weighting="contrast").score([RED] * 2, ["torn", "good"])
    assert weighted.overall.isnan().tolist() == [True, False]


def test_certain_verdicts_count_more() -> None:
    scores = Rubric(JUDGE, ITEMS, weighting="harmonic", gamma=0.5).score([RED], ["good"])
    deviations = [math.sqrt(0.75 * 0.25), math.sqrt(0.5 * 0.25), math.sqrt(0.8 * 0.2)]
    raw = [weight / deviation**2 for weight, deviation in zip((1, 0.3, 0.9), deviations)]
    assert scores.overall.item() == pytest.approx((raw[0] + 0.5 * raw[1] + raw[2]) / sum(raw))
    assert certain_weights([1.0, 3.0], [0.5, 0.5], gamma=0.75) == pytest.approx([0.25, 0.75])
    assert certain_weights([1.0, 1.0], [0.0, 0.5], gamma=0.75) == [1.0, 0.0]


def test_contrast_follows_the_group_in_training_only() -> None:
    judge = Table(
        JUDGE.table | {("same", "colour"): (0.1, 0.3), ("same", "many"): (0.3, 0.1, 0.1), ("same", "invents"): (4, 1)}
    )
    rubric = Rubric(judge, ITEMS, weighting="contrast")
    # colour is equal in the group, invention too: how many decides alone
    scores = rubric.score([RED, RED, BLUE], ["good", "same", "bad"])
    assert scores.overall.tolist() == pytest.approx([0.5, 0.0, 0.3 / 2.2])  # the third is a group of its own
    held_out = rubric.for_evaluation()
    assert (
        held_out.score([RED], ["good"]).overall.tolist() == Rubric(judge, ITEMS).score([RED], ["good"]).overall.tolist()
    )
    assert contrast_weights([1.0, 3.0], torch.tensor([[0.5, 0.5]])) == [0.25, 0.75]


def test_the_request_is_shown_and_what_is_shared_comes_first() -> None:
    judge = Table(JUDGE.table)
    Rubric(judge, ITEMS).score([RED], ["good"], inputs=["Describe it."])
    first, second, _ = judge.calls[0]
    shared = first[: first.index("Item:")]
    assert second.startswith(shared) and "this request: Describe it." in shared and "Text: good" in shared
    assert second.endswith("Answer with one of: no, partly, yes.")


def test_one_function_a_label_in_trl() -> None:
    judge = Table(JUDGE.table)
    functions = Rubric(judge, ITEMS).per_item()
    assert [function.__name__ for function in functions] == ["Rubric/essential", "Rubric/optional", "Rubric/invention"]
    completions, prompts = ["good", "bad"], ["Describe it."] * 2
    found = [function(prompts=prompts, completions=completions, image=[RED, RED]) for function in functions]
    assert found == [[1.0, 0.0], [0.5, 1.0], [1.0, 0.0]] and len(judge.calls) == 1
    shares = Rubric(judge, ITEMS).parts_to_train()
    assert shares == pytest.approx({"essential": 1 / 2.2, "optional": 0.3 / 2.2, "invention": 0.9 / 2.2})
    whole = Rubric(judge, ITEMS).score([RED, RED], completions).overall.tolist()
    assert [sum(s * part[row] for s, part in zip(shares.values(), found)) for row in (0, 1)] == pytest.approx(whole)
    assert Rubric(judge).parts_to_train() == {}
    column = Rubric(judge)(prompts=prompts, completions=completions, image=[RED, RED], rubric=[ITEMS, ITEMS])
    assert column == pytest.approx([2.05 / 2.2, 0.3 / 2.2])


def test_mistakes_are_named() -> None:
    with pytest.raises(UnsupportedAbility):
        Rubric(Judge(), ITEMS)
    with pytest.raises(InputError, match="weighting is 'loud'"):
        Rubric(JUDGE, ITEMS, weighting="loud")
    with pytest.raises(InputError, match="no column 'rubric'"):
        Rubric(JUDGE).score([RED], ["good"])
    with pytest.raises(InputError, match="2 images for 1"):
        Rubric(JUDGE, ITEMS).score([RED, RED], ["good"])


def test_settings_build_it_and_a_real_judge_answers(tmp_path) -> None:
    block = {"kind": "rubric", "judge": tiny_models.save("qwen2_5_vl", tmp_path / "m"), "items": ITEMS, "soft": True}
    rubric = build_reward(RewardSettings(**block))
    copied = pickle.loads(pickle.dumps(rubric))
    image = tiny_models.picture(0)
    together = rubric.score([image, image], ["a red circle", "red"]).overall
    alone = copied.score([image], ["red"]).overall
    assert torch.allclose(together[1:], alone, atol=1e-5) and together[0] != together[1]
    assert rubric.identity() == copied.identity() and rubric.identity()["items"][1]["weight"] == 0.3
