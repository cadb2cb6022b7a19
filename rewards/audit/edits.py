"""One false detail: a true text with one place changed, by kind. Rules on words, deterministic, no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rewards.audit import words

Vocabulary = Mapping[str, Collection[str]]
Editor = Callable[[str, Collection[str]], list[str]]
_WORD = re.compile(r"[A-Za-z]+")


def vocabulary_of(texts: Iterable[str]) -> dict[str, set[str]]:
    """The words of a user's own texts by kind: what a policy that was trained on them would write.

    Example:
        >>> spoken = vocabulary_of(["a red cat on a gray background"])
        >>> "gray" in spoken["background"], "red" in spoken["background"]
        (True, False)
    """
    spoken: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for text in texts:
        for found in _WORD.finditer(text):
            word = found[0].lower()
            backdrop = _before_backdrop(text, found.start())
            for kind in KINDS:
                if word not in words.COLORS or backdrop == (kind == "background"):
                    spoken[kind].add(word)
    return spoken


def false_texts(text: str, kind: str, vocabulary: Vocabulary | None = None) -> list[str]:
    """Every change of one detail of a kind that the rules find in a text, in the order of its words.

    Args:
        text: a true text about a picture.
        kind: one of :data:`KINDS`.
        vocabulary: words that may be put in, by kind (:func:`vocabulary_of`); where it has none for a place, and by
            default, those of :mod:`rewards.audit.words`.

    Returns:
        Texts that differ from it in one place; none where it holds no detail of the kind.

    Raises:
        KeyError: an unknown kind.

    Example:
        >>> false_texts("A dog on a red couch.", "color")[:2]
        ['A dog on an orange couch.', 'A dog on a yellow couch.']
        >>> false_texts("A dog on a red couch.", "count")
        []
    """
    known = () if vocabulary is None else vocabulary[kind]
    return [changed for changed in dict.fromkeys(KINDS[kind](text, known)) if changed != text]


def _colors(text: str, known: Collection[str]) -> list[str]:
    return [edit for at, edit in _swaps(text, [words.COLORS], known) if not _before_backdrop(text, at)]


def _backgrounds(text: str, known: Collection[str]) -> list[str]:
    return [edit for at, edit in _swaps(text, [words.COLORS], known) if _before_backdrop(text, at)]


def _numbers(text: str, known: Collection[str]) -> list[str]:
    return [edit for _, edit in _swaps(text, [words.NUMBERS], known)]


def _objects(text: str, known: Collection[str]) -> list[str]:
    return [edit for at, edit in _swaps(text, words.OBJECTS, known) if _ends_noun(text, at)]


def _attributes(text: str, known: Collection[str]) -> list[str]:
    found = []
    for match in _WORD.finditer(text):
        word, before = match[0].lower(), _WORD.findall(text[: match.start()].lower())[-2:]
        new = words.ATTRIBUTES.get(word)
        if word in words.POSTURES and words.LIVING.intersection(before):
            new = words.POSTURES[word]
        if new is not None:
            found.append(_put(text, match.span(), new))
    return found


def _relations(text: str, known: Collection[str]) -> list[str]:
    """Phrases in each other's place, the longest that fits first, so that "on top of" is never read as "top"."""
    phrases = {a: b for pair in words.RELATIONS for a, b in (pair, pair[::-1])}
    longest = "|".join(sorted(map(re.escape, phrases), key=len, reverse=True))
    # What a relation has no object after ("all over", "looks outside.") is none.
    pattern = re.compile(rf"(?<!all )\b({longest})\b(?= \w)", re.I)
    return [_put(text, found.span(), phrases[found[0].lower()]) for found in pattern.finditer(text)]


def _locations(text: str, known: Collection[str]) -> list[str]:
    return [edit for at, edit in _swaps(text, words.LOCATIONS, known) if _ends_noun(text, at)]


def _negation(text: str, known: Collection[str]) -> list[str]:
    rules = (
        (r"\bis\b(?! not| no\b)", "is not"),
        (r"\bare\b(?! not| no\b)", "are not"),
        (r"(?<!ed )(?<!along )(?<!up )\bwith\b", "without"),  # "covered with" is one thing
    )
    return [_put(text, found.span(), new) for old, new in rules for found in re.finditer(old, text)]


def _invented(text: str, known: Collection[str]) -> list[str]:
    """A thing more: before the background where the text ends with one, else at the end."""
    said = set(_WORD.findall(text.lower()))
    things = [thing for thing in words.INVENTED if thing.split()[-1] not in said]
    things = [thing for thing in things if known and set(thing.split()[1:]) <= set(known)] or things
    if backdrop := re.search(rf" (?:on|against|in front of) an? \w+ (?:{'|'.join(words.BACKDROPS)})\W*$", text):
        return [f"{text[: backdrop.start()]} and {thing}{text[backdrop.start() :]}" for thing in things]
    body, end = (text[:-1], text[-1]) if text[-1:] in (".", "!") else (text, "")
    return [f"{body} with {thing}{end}" for thing in things if body.strip()]


def _omitted(text: str, known: Collection[str]) -> list[str]:
    """The text without what follows its last "and", "with" or comma: true, but less of it."""
    found = [m for m in re.finditer(r",? \b(?:and|with|while)\b |, ", text) if m.start() > 0]
    end = text[-1] if text[-1:] in (".", "!") else ""
    for match in found[-1:]:
        left = _WORD.findall(text[: match.start()].lower())
        # What stands before the cut must be whole: not "a red, blue", "between a dog", "covered".
        last = left[-1] if len(left) >= 2 else "and"
        parts = {*words.COLORS, *words.ATTRIBUTES, *words.NUMBERS, "and"}
        listed = "and" in match[0] and ("," in text[: match.start()] or {"between", "both"}.intersection(left))
        if last not in parts and not listed and not ("with" in match[0] and last.endswith("ed")):
            return [text[: match.start()] + end]
    return []


def _swaps(text: str, groups: Sequence[Sequence[str]], known: Collection[str]) -> list[tuple[int, str]]:
    """Every word of a group exchanged for each other word of it that the text does not hold, with the word's place."""
    said = set(_WORD.findall(text.lower()))
    found = []
    for match in _WORD.finditer(text):
        word = match[0].lower()
        for group in groups:
            if word not in group:
                continue
            same = {other for names in words.SAME if word in names for other in names}
            others = [other for other in group if other not in said | same]
            spoken = [other for other in others if other in known]
            found += [(match.start(), _put(text, match.span(), other)) for other in spoken or others]
    return found


def _ends_noun(text: str, at: int) -> bool:
    """Whether the word at a place is a noun of its own, and not the first part of another ("banana tree")."""
    word = _WORD.match(text, at)
    rest = text[word.end() :] if word else ""
    following = re.match(r" +([A-Za-z]+)", rest)
    return following is None or following[1].lower() in words.AFTER_NOUNS or following[1].lower().endswith("ing")


def _put(text: str, span: tuple[int, int], new: str) -> str:
    """`new` in the place of a span, in its capitals, and with the article that it takes."""
    start, end = span
    if text[start].isupper():
        new = new[0].upper() + new[1:]
    before = re.sub(
        r"\b(a|an) $",
        lambda m: ("an " if new[0].lower() in "aeiou" else "a ") if m[1].islower() else m[0],
        text[:start],
    )
    if before == text[:start] and re.search(r"\b(A|An) $", before):
        before = re.sub(r"\b(A|An) $", "An " if new[0].lower() in "aeiou" else "A ", before)
    return before + new + text[end:]


def _before_backdrop(text: str, at: int) -> bool:
    following = _WORD.findall(text[at:])
    return len(following) > 1 and following[1].lower() in words.BACKDROPS


KINDS: dict[str, Editor] = {
    "color": _colors,
    "background": _backgrounds,
    "count": _numbers,
    "object": _objects,
    "attribute": _attributes,
    "relation": _relations,
    "location": _locations,
    "negation": _negation,
    "invented": _invented,
    "omitted": _omitted,
}
"""Kinds of false details, each with its rule. All but the last make the text false; "omitted" makes it say less."""
