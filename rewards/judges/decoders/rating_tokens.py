"""Which tokens of a vocabulary mean a rating, and at which position they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewards.judges.base import UnsupportedAbility
from rewards.judges.prompting import Tokenizer, added_tokens

_BLANKS = ("", " ", "Ġ", "▁")


class RatingTokens(NamedTuple):
    """Where and as what a judge says a rating.

    Attributes:
        bridge: Tokens that the judge itself puts between the generation prompt and a rating. LLaVA-1.5's tokenizer
            writes "5" after "ASSISTANT:" as a bare "▁" and a "5": the rating is read after the "▁".
        variants: For each rating, the ids of the tokens that spell it ("5", " 5", "▁5").
    """

    bridge: list[int]
    variants: list[list[int]]


def continuation(tokenizer: Tokenizer, tail: str, text: str) -> list[int]:
    """Ids with which a judge would go on with `text` after a prompt that ends in `tail`.

    A blank comes first unless `tail` ends in a blank or a control token.
    """
    glue = "" if not tail or tail[-1].isspace() or _ends_in_added_token(tokenizer, tail) else " "
    before = tokenizer.encode(tail, add_special_tokens=False)
    after = tokenizer.encode(tail + glue + text, add_special_tokens=False)
    if after[: len(before)] == before and len(after) > len(before):
        return after[len(before) :]
    return tokenizer.encode(glue + text, add_special_tokens=False)


def find_rating_tokens(tokenizer: Tokenizer, tail: str, ratings: Sequence[str]) -> RatingTokens:
    """The tokens of each rating, verified: each spells its rating, and none spells two.

    Raises:
        UnsupportedAbility: A rating is no single token of this vocabulary.

    Example:
        >>> find_rating_tokens(tokenizer, "ASSISTANT:", ("1", "2"))  # doctest: +SKIP
        RatingTokens(bridge=[], variants=[[20, 301], [21, 302]])
    """
    variants = [_variants(tokenizer, rating) for rating in ratings]
    for rating, ids in zip(ratings, variants):
        if not ids:
            raise UnsupportedAbility(
                f"rating {rating!r} is not a single token of the judge's tokenizer ({tokenizer.encode(rating)}); "
                "use ratings that are, or another judge"
            )
    flat = [token for ids in variants for token in ids]
    if len(set(flat)) != len(flat):
        raise UnsupportedAbility(f"two of the ratings {list(ratings)} share a token of the judge's tokenizer")
    said = [continuation(tokenizer, tail, rating) for rating in ratings]
    bridges = {tuple(ids[:-1]) for ids in said}
    follows = all(ids[-1] in allowed for ids, allowed in zip(said, variants))
    if not follows or len(bridges) != 1:
        raise UnsupportedAbility(
            f"the ratings {list(ratings)} do not stand at one position after the judge's prompt: {said}"
        )
    return RatingTokens(list(bridges.pop()), variants)


def following_tokens(tokenizer: Tokenizer, tail: str, said: str, ratings: Sequence[str]) -> RatingTokens:
    """The token of each rating right after what a judge has already said: the 8 of "0.8" after "0.".

    Raises:
        UnsupportedAbility: A rating is no single token there, or the words before it are cut otherwise with it.
    """
    bridge = continuation(tokenizer, tail, said)
    variants = []
    for rating in ratings:
        ids = continuation(tokenizer, tail, said + rating)
        if ids[:-1] != bridge:
            raise UnsupportedAbility(
                f"{rating!r} after {said!r} is not a single token of the judge's tokenizer ({ids} after {bridge})"
            )
        variants.append([ids[-1]])
    return RatingTokens(bridge, variants)


def _variants(tokenizer: Tokenizer, rating: str) -> list[int]:
    candidates = {tokenizer.convert_tokens_to_ids(blank + rating) for blank in _BLANKS}
    for written in (rating, " " + rating):
        ids = tokenizer.encode(written, add_special_tokens=False)
        if len(ids) == 1:
            candidates.add(ids[0])
    candidates.discard(tokenizer.unk_token_id)
    return sorted(token for token in candidates if token is not None and tokenizer.decode([token]).strip() == rating)


def _ends_in_added_token(tokenizer: Tokenizer, tail: str) -> bool:
    return any(tail.endswith(token) for token in added_tokens(tokenizer))
