"""With which tokens an answer begins."""

from __future__ import annotations

from collections.abc import Sequence

from rewards.judges.base import UnsupportedAbility
from rewards.judges.prompting import Tokenizer


def first_tokens(tokenizer: Tokenizer, forms: Sequence[str]) -> list[int]:
    """Ids of the first tokens of some spellings of one answer, each once.

    Two spellings may share their first token (" y.." and "y.." in one vocabulary); counted twice, a probability could
    exceed 1. A token that is only a blank begins every answer and is left out.

    Raises:
        UnsupportedAbility: No spelling begins with a token of its own.

    Example:
        >>> first_tokens(tokenizer, ["Yes", "yes", " yes", " Yes"])  # doctest: +SKIP
        [9693, 9834, 9454, 7414]
    """
    encoded = [tokenizer.encode(form, add_special_tokens=False)[:1] for form in forms]
    ids = dict.fromkeys(token for first in encoded for token in first)
    spoken = [token for token in ids if token != tokenizer.unk_token_id and tokenizer.decode([token]).strip()]
    if not spoken:
        raise UnsupportedAbility(f"none of {list(forms)} begins with a token of its own in the judge's vocabulary")
    return spoken
