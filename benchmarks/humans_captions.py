"""Our reference-based metrics beside the COCO scripts (PTB tokens, Java METEOR) and the published numbers.

    python benchmarks/humans_captions.py ../shared/data/fleur/flickr8k.json ../shared/data/fleur/pascal_50s.json

The COCO scripts come with pycocoevalcap (extra `humans`) and need Java. Rows between the two change one thing at a
time, so that a difference has a name.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rewards.humans.captions.benchmarks import PUBLISHED, compare, headline, items_to_score, read_benchmark, scores_once
from rewards.humans.metrics.base import TextItem
from rewards.humans.metrics.references import reference_metrics
from rewards.tables import text_table

Score = Callable[[Sequence[TextItem]], np.ndarray]


def coco_tokens(items: Sequence[TextItem]) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """References and captions after the PTB tokenizer of the COCO scripts, by item."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenizer = PTBTokenizer()
    references = {n: [{"caption": text} for text in item.references] for n, item in enumerate(items)}
    captions = {n: [{"caption": item.text}] for n, item in enumerate(items)}
    return tokenizer.tokenize(references), tokenizer.tokenize(captions)


def coco_scores(items: Sequence[TextItem]) -> dict[str, np.ndarray]:
    """BLEU-4, ROUGE-L, METEOR and CIDEr of the COCO scripts, an item by itself (CIDEr's frequencies: all items)."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge

    references, captions = coco_tokens(items)
    with contextlib.redirect_stdout(io.StringIO()):
        return {
            "BLEU": np.array(Bleu(4).compute_score(references, captions, verbose=0)[1][3]),
            "ROUGE": np.array(Rouge().compute_score(references, captions)[1]),
            "METEOR": np.array(Meteor().compute_score(references, captions)[1]),
            "CIDEr": np.array(Cider().compute_score(references, captions)[1]),
        }


def variants() -> dict[str, Score]:
    """One change each: BLEU without smoothing, METEOR's tokens, CIDEr's and ROUGE's plain tokens stay ours."""
    import sacrebleu

    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # it advises against scores without effective order

    def unsmoothed(items: Sequence[TextItem]) -> np.ndarray:
        bleu = sacrebleu.BLEU(smooth_method="floor", smooth_value=1e-9)
        return np.array([bleu.sentence_score(item.text, list(item.references)).score for item in items])

    def lowered(items: Sequence[TextItem]) -> np.ndarray:
        bleu = sacrebleu.BLEU(lowercase=True, smooth_method="floor", smooth_value=1e-9)
        return np.array([bleu.sentence_score(item.text, list(item.references)).score for item in items])

    return {"BLEU, floor 1e-9 for exp smoothing": unsmoothed, "BLEU, the same, lower case": lowered}


def rows(name: str, path: Path) -> list[list[str]]:
    """A row a metric and pipeline: the statistic that the papers print, x 100, and what they printed."""
    records = read_benchmark(name, [path]).records
    items = items_to_score(records)
    once, places = scores_once(items)
    found: dict[str, np.ndarray] = {f"{m.name}, ours": m(once).overall for m in reference_metrics()}
    found |= {label: score(once) for label, score in variants().items()}
    found |= {f"{label}, COCO scripts": scores for label, scores in coco_scores(once).items()}
    table = []
    for label in sorted(found):
        value = headline(compare(name, records, found[label][places], resamples=1)).value
        table.append([label, f"{100 * value:.1f}", f"{PUBLISHED[name][label.partition(',')[0]]:.1f}"])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flickr8k", type=Path)
    parser.add_argument("pascal50s", type=Path)
    args = parser.parse_args()
    for name, path in (("flickr8k-ex", args.flickr8k), ("pascal50s", args.pascal50s)):
        print(f"{name} (tau-c, or accuracy: mean of the four classes; x 100)")
        print(text_table(["metric", "here", "published"], rows(name, path)), end="\n\n")


if __name__ == "__main__":
    main()
