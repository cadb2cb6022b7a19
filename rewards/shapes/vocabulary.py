"""The words of the shapes world and its tokenizer: one token a word, as a plain ``PreTrainedTokenizerFast``."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rewards.shapes.language import FILLERS, NUMBERS, PLURALS, RELATIONS, VAGUE
from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES

RATINGS = ("1", "2", "3", "4", "5")
CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")
_OTHERS = (
    "a an and are as at background big bright caption color dark describe did do does find give has have here "
    "how image in is it its just left like look made many much next no nothing object objects of on one or "
    "other picture please question rate relative right say see shape shapes show shown shows side small some "
    "text that the there this to very what where which white with you yes ? . ,"
).split()
WORDS = tuple(
    dict.fromkeys(
        [*sorted({*_OTHERS, *COLORS, *BACKGROUNDS, *SHAPES, *PLURALS, *NUMBERS, *VAGUE, *CRITERIA,
                  *(w for phrase in (*FILLERS, *(r.split() for r in RELATIONS)) for w in phrase)}), *RATINGS]
    )
)  # fmt: skip


def new_tokenizer(specials: Sequence[str], template: str | None = None, **names: str) -> PreTrainedTokenizerFast:
    """A word-level tokenizer: ``specials`` first, then :data:`WORDS`.

    Args:
        specials: control tokens, the unknown token among them.
        template: what surrounds a text, such as ``"<s> $A </s>"``; None adds nothing.
        names: which special is what, as ``PreTrainedTokenizerFast`` calls them (``pad_token="<pad>"``, ...).

    Example:
        >>> tokenizer = new_tokenizer(["<pad>", "<unk>"], pad_token="<pad>", unk_token="<unk>")
        >>> tokenizer.decode(tokenizer("A red circle?").input_ids)
        'a red circle ?'
    """
    ids = {token: i for i, token in enumerate([*specials, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=names["unk_token"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        pairs = [(token, ids[token]) for token in specials if token in template.split()]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
