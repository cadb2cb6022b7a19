"""Metrics under one protocol: values against their libraries and formulas, gammas from one pass, abstentions."""

import math

import numpy as np
import pytest
import torch

from rewards.errors import InputError
from rewards.harmonic.reward import HarmonicEval
from rewards.humans.metrics.base import TextItem
from rewards.humans.metrics.harmonic import harmonic_scores
from rewards.humans.metrics.overall_judge import OverallJudge
from rewards.humans.metrics.references import reference_metrics
from rewards.judges.base import Judge, Ratings
from rewards.judges.loading import load_judge
from tests import tiny_models

ITEMS = [
    TextItem(None, "a red circle on white", references=("a red circle on white", "one red disc")),
    TextItem(None, "two blue squares", references=("a green triangle",)),
]


class Fixed(Judge):
    """Gives the same distribution for every prompt that holds a word, another for the rest."""

    name = "fixed"

    def rate(self, images, prompts, ratings=("1", "2", "3", "4", "5")):
        rows = torch.zeros(len(prompts), len(ratings))
        for row, prompt in enumerate(prompts):
            if "unrated" in prompt:
                rows[row] = 0.001
            else:
                rows[row, -1], rows[row, 0] = (0.8, 0.2) if "good" in prompt else (0.1, 0.3)
        return Ratings(rows, rows.sum(1), (None,) * len(prompts))


def items(*texts):
    return [TextItem(tiny_models.picture(0), text) for text in texts]


def test_one_prompt_for_all_criteria_gives_the_expected_rating():
    scores = OverallJudge(Fixed(), "{text}")(items("good", "bad", "unrated")).overall
    assert scores[:2].tolist() == pytest.approx([0.8 * 5 + 0.2, 0.25 * 5 + 0.75]) and math.isnan(scores[2])


def test_gammas_from_one_pass_equal_rewards_of_their_own(tmp_path):
    judge = load_judge(tiny_models.save("llava", tmp_path / "llava"))
    chosen = items("a red circle", "blue", "on a white background")
    by_gamma = harmonic_scores(HarmonicEval(judge, min_rating_mass=0), chosen, gammas=(0.0, 0.5, 1.0))
    for gamma, scores in by_gamma.items():
        own = HarmonicEval(judge, gamma=gamma, min_rating_mass=0).score(
            [i.image for i in chosen], [i.text for i in chosen]
        )
        assert scores.overall.tolist() == pytest.approx(own.overall.tolist(), abs=1e-5)
        assert scores.criteria == pytest.approx(own.criteria.numpy(), abs=1e-6)
    uniform = by_gamma[1.0]
    assert uniform.overall == pytest.approx(uniform.criteria.mean(1), abs=1e-5)


def test_reference_metrics_prefer_the_copy_and_need_references():
    pytest.importorskip("pycocoevalcap", reason="the extra 'humans' is not installed")
    metrics = reference_metrics()
    assert [metric.name for metric in metrics] == ["BLEU", "ROUGE", "METEOR", "CIDEr"]
    for metric in metrics:
        good, bad = metric(ITEMS).overall
        assert good > bad and bad == pytest.approx(0, abs=0.02), metric.name
        with pytest.raises(InputError, match=f"item 0 .* has no references, which {metric.name} needs"):
            metric(items("x"))
    assert metrics[0](ITEMS).overall[0] == pytest.approx(1.0) and metrics[1](ITEMS).overall[0] == 1.0


def test_bert_score_of_a_tiny_bert(tmp_path):
    pytest.importorskip("torchmetrics", reason="the extra 'humans' is not installed")
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = tiny_models.wordpiece_tokenizer()
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    scores = reference_metrics(str(tmp_path))[-1](ITEMS).overall
    assert scores[0] == pytest.approx(1.0, abs=1e-4) and scores[1] < 1


def test_clip_score_is_the_formula(tmp_path):
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTextConfig, CLIPVisionConfig

    from rewards.humans.metrics.clip_score import CLIPScore

    torch.manual_seed(0)
    tokenizer = tiny_models.bpe_tokenizer(
        ["<pad>", "<s>", "</s>"], pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "projection_dim": 8,
    }
    text = CLIPTextConfig(
        vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, max_position_embeddings=64, **small
    )
    vision = CLIPVisionConfig(image_size=28, patch_size=14, **small)
    model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)).eval()
    model.save_pretrained(tmp_path)
    size = {"height": 28, "width": 28}
    processor = CLIPProcessor(CLIPImageProcessor(size=size, crop_size=size), tokenizer)
    processor.save_pretrained(tmp_path)
    chosen = [TextItem(tiny_models.picture(n), text) for n, text in enumerate(("a red circle", "blue"))]
    scores = CLIPScore(str(tmp_path), batch_size=1)(chosen).overall
    for item, score in zip(chosen, scores, strict=True):
        inputs = processor(text=["A photo depicts " + item.text], images=[item.image], return_tensors="pt")
        with torch.no_grad():
            outputs = model(**inputs)
        cosine = torch.cosine_similarity(outputs.image_embeds, outputs.text_embeds).item()
        assert score == pytest.approx(2.5 * max(cosine, 0), abs=1e-5)
    assert np.isfinite(scores).all()


def test_the_battery_runs_what_a_judge_can_do(tmp_path):
    from rewards.humans.metrics.battery import Battery
    from rewards.tifa.vqascore import VQAScore

    judge = load_judge(tiny_models.save("qwen2_5_vl", tmp_path / "qwen"))
    chosen = items("a red circle", "blue")
    battery = Battery(judge)
    found = battery.score("captioning", chosen)
    assert {"FLEUR", "w/o criterion-wise scoring", "HarmonicEval"} <= set(found)
    for name, wording in (("VQAScore", "vqascore"), ("VQAScore, GenEval 2's words", "geneval2")):
        expected = VQAScore(judge, wording).score([i.image for i in chosen], [i.text for i in chosen]).overall
        assert found[name].overall == pytest.approx(expected.numpy(), abs=1e-6)
    assert found["VQAScore"].overall.tolist() != found["VQAScore, GenEval 2's words"].overall.tolist()
    assert any("reference-based metrics left out" in note for note in battery.notes)
    rater = Battery(load_judge("shapes-rater"))
    assert not {"FLEUR", "VQAScore"} & set(rater.score("captioning", chosen))
    assert any(note.startswith("FLEUR left out: rating '0'") for note in rater.notes)
