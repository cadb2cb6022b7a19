"""Reference-based metrics through their libraries (extra `humans`): nothing is computed here but the joining.

- BLEU: sacrebleu, sentence level with exponential smoothing, 13a tokens
- ROUGE-L: rouge-score, the best F1 over the references
- METEOR: nltk, exact and stem matching; synonyms only where nltk's WordNet is installed
- CIDEr: pycocoevalcap, document frequencies over the references of the items given
- BERTScore: torchmetrics, F1, the best over the references

The papers' numbers stand on the COCO scripts: PTB tokens in lower case, BLEU without smoothing, METEOR with synonyms
and paraphrases. `benchmarks/humans_captions.py` runs both on the same captions (Flickr8k-Expert, tau-c x 100: BLEU 33.0
here, 30.8 there; ROUGE 32.9, 32.3; METEOR 35.3, 41.8; CIDEr 43.8, 43.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from rewards.errors import InputError
from rewards.humans.metrics.base import MetricScores, TextItem, as_scores, check_references


class ReferenceMetric:
    """A metric that compares texts with references.

    Args:
        name: of the metric.
        score: items -> one number each.
    """

    needs_references = True

    def __init__(self, name: str, score: Callable[[Sequence[TextItem]], list[float]]) -> None:
        self.name = name
        self.score = score

    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts.

        Raises:
            InputError: an item without references.
        """
        check_references(items, self.name)
        return as_scores(self.score(items))


def reference_metrics(bert_model: str | None = None) -> list[ReferenceMetric]:
    """BLEU, ROUGE-L, METEOR, CIDEr, and BERTScore where a model is named.

    Args:
        bert_model: checkpoint name or directory for BERTScore.

    Raises:
        InputError: a library is missing.
    """
    metrics = [
        ReferenceMetric("BLEU", _bleu()),
        ReferenceMetric("ROUGE", _rouge()),
        ReferenceMetric("METEOR", _meteor()),
        ReferenceMetric("CIDEr", _cider()),
    ]
    return [*metrics, ReferenceMetric("BERT-S", _bert(bert_model))] if bert_model is not None else metrics


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"{name.partition('.')[0]} is not installed: install readable-rewards[humans] (in a checkout: "
            "pip install '.[humans]')"
        ) from error


def _bleu() -> Callable[[Sequence[TextItem]], list[float]]:
    bleu = _library("sacrebleu").BLEU(effective_order=True)
    return lambda items: [bleu.sentence_score(item.text, list(item.references)).score / 100 for item in items]


def _rouge() -> Callable[[Sequence[TextItem]], list[float]]:
    scorer = _library("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    return lambda items: [scorer.score_multi(list(item.references), item.text)["rougeL"].fmeasure for item in items]


class _NoSynonyms:
    """Stands in for WordNet where it is not installed: METEOR then matches words and stems only."""

    @staticmethod
    def synsets(word: str) -> list[object]:
        return []


def _meteor() -> Callable[[Sequence[TextItem]], list[float]]:
    score = _library("nltk.translate.meteor_score").meteor_score
    wordnet: Any = _NoSynonyms
    try:
        import_module("nltk.data").find("corpora/wordnet")
        wordnet = import_module("nltk.corpus").wordnet
    except LookupError:
        pass
    return lambda items: [
        score([reference.lower().split() for reference in item.references], item.text.lower().split(), wordnet=wordnet)
        for item in items
    ]


def _cider() -> Callable[[Sequence[TextItem]], list[float]]:
    cider = _library("pycocoevalcap.cider.cider").Cider

    def score(items: Sequence[TextItem]) -> list[float]:
        references = {n: [text.lower() for text in item.references] for n, item in enumerate(items)}
        return [
            float(v) for v in cider().compute_score(references, {n: [i.text.lower()] for n, i in enumerate(items)})[1]
        ]

    return score


def _bert(path: str) -> Callable[[Sequence[TextItem]], list[float]]:
    bert_score = _library("torchmetrics.functional.text.bert").bert_score

    def score(items: Sequence[TextItem]) -> list[float]:
        texts = [item.text for item in items for _ in item.references]
        references = [reference for item in items for reference in item.references]
        flat = bert_score(texts, references, model_name_or_path=path)["f1"]
        values = iter(flat.tolist() if hasattr(flat, "tolist") else list(flat))
        return [max(next(values) for _ in item.references) for item in items]

    return score
