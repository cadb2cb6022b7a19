"""A free-form answer -> one of the choices, or nothing (TIFA §3.3).

The paper maps every answer to the nearest choice by SBERT, the released code only those that equal no choice letter by
letter; neither has a threshold, so that an empty answer becomes "no" and "0" becomes "1". Offered are

| mode | equal answers | SBERT is asked | threshold |
|---|---|---|---|
| `code` (default) | in normalised form, and by what they say | about open answers that equal no choice | 0.5 |
| `paper` | | about every open answer | 0.5 |
| `official` | letter by letter | about every other answer | none |

`official` gives choice by choice what the released scorer gives (`benchmarks/tifa_official.py` compares them). The
other two differ from it on purpose: numbers, yes and no are read by rule and never by nearness, and an answer that is
near no choice is `unmatched`: wrong, and counted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rewards.errors import InputError
from rewards.judges.hub import why_missing
from rewards.judges.weights import content_of_folder
from rewards.runs.files import Json
from rewards.tifa import SENTENCE_MODEL, closed
from rewards.tifa.closed import polarity, quantity
from rewards.tifa.normalization import normalize_answer
from rewards.tifa.numbers import is_number
from rewards.tifa.released_matching import ReleasedSentences

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MODES = ("code", "paper", "official")

THRESHOLD = 0.5
"""Least cosine similarity of a match. See `benchmarks/tifa_matching.py` for what it lets through."""

_TIE = 1e-5  # one text embedded in different batches differs by less than 1e-6; two texts hardly ever differ so little
_CACHED_TEXTS = 16384


@dataclass(frozen=True)
class Match:
    """Where an answer belongs.

    Attributes:
        index: Position of the choice, or None where no choice matches.
        how: "exact" (equal after normalisation), "sentence" (nearest by SBERT) or "unmatched".
        similarity: Cosine similarity in [-1, 1] to the nearest choice; 1 for an exact match, None where SBERT was not
            asked.
    """

    index: int | None
    how: str
    similarity: float | None = None


class AnswerMatcher:
    """Maps answers to choices; embeds every text once.

    Args:
        sentence_model: A sentence-transformers checkpoint or directory, loaded when an answer first needs it; None to
            match exactly only.
        threshold: Least cosine similarity, in [-1, 1], at which the nearest choice is taken; default: 0.5, and none
            in mode "official".
        mode: "code": SBERT only for answers that equal no choice; "paper": SBERT for every answer. Numbers, "yes",
            "no" and empty answers match exactly or not at all in both: their embeddings lie close together whatever
            they mean. "official": as the released scorer, for numbers that are compared with published ones.
        device: Where the sentence model runs.

    Raises:
        InputError: An unknown mode, a threshold out of range or in mode "official", or a mode that needs a sentence
            model without one.

    Example:
        >>> matcher = AnswerMatcher(sentence_model=None)
        >>> matches = matcher.match(["Three.", "a dog", ""], [["2", "3"], ["cat", "dog"], ["yes", "no"]])
        >>> [match.index for match in matches]
        [1, 1, None]
    """

    _model: Any
    _vectors: OrderedDict[str, torch.Tensor]
    _lock: threading.RLock

    def __init__(
        self,
        sentence_model: str | None = SENTENCE_MODEL,
        threshold: float | None = None,
        mode: str = "code",
        device: str = "cpu",
    ) -> None:
        if mode not in MODES:
            raise InputError(f"mode is {mode!r}; expected one of {', '.join(map(repr, MODES))}")
        if mode == "official" and threshold is not None:
            raise InputError(f"threshold is {threshold!r}; the released scorer (mode='official') has none")
        threshold = THRESHOLD if threshold is None else threshold
        if not -1 <= threshold <= 1:
            raise InputError(f"threshold is {threshold!r}; expected a cosine similarity in [-1, 1]")
        if mode != "code" and sentence_model is None:
            raise InputError(f"mode={mode!r} matches by SBERT and needs a sentence model")
        self.sentence_model = sentence_model
        in_folder = sentence_model is not None and Path(sentence_model).is_dir()
        self.weights = content_of_folder(sentence_model) if in_folder and sentence_model is not None else None
        self.threshold = threshold
        self.mode = mode
        self.device = device
        self._reset()

    def identity(self) -> dict[str, Json]:
        """What must be recorded with a score for it to be made again; of a directory what it holds."""
        threshold = None if self.mode == "official" else self.threshold
        content = {} if self.weights is None else {"sentence_weights": self.weights}
        return {"sentence_model": self.sentence_model, **content, "threshold": threshold, "mode": self.mode}

    def load(self) -> None:
        """Load the sentence model now instead of when an answer first needs it.

        Raises:
            InputError: It cannot be loaded.
        """
        with self._lock:
            if self._model is None and self.sentence_model is not None:
                kind = ReleasedSentences if self.mode == "official" else _sentence_transformer
                self._model = _load_sentence_model(self.sentence_model, self.device, kind)

    def match(self, answers: Sequence[str], choices: Sequence[Sequence[str]]) -> list[Match]:
        """Match each answer against its own choices.

        Args:
            answers: N texts.
            choices: N lists of choices, none empty.

        Returns:
            N matches. Of several equally good choices the first is taken.

        Raises:
            InputError: The lists differ in length, a row has no choices, or the sentence model cannot be loaded.
        """
        if len(answers) != len(choices):
            raise InputError(f"got {len(answers)} answers but {len(choices)} lists of choices")
        for row, options in enumerate(choices):
            if not options:
                raise InputError(f"row {row} (answer {answers[row]!r}) has no choices")
        if self.mode == "official":
            return [self._as_released(answer, options) for answer, options in zip(answers, choices)]
        matches = [match_exactly(answer, options) for answer, options in zip(answers, choices)]
        asked = [row for row, match in enumerate(matches) if self._needs_sentences(match, answers[row], choices[row])]
        if asked:
            self._embed([text for row in asked for text in (answers[row], *choices[row])])
        for row in asked:
            matches[row] = self._nearest(answers[row], choices[row])
        return matches

    def _as_released(self, answer: str, choices: Sequence[str]) -> Match:
        if answer in choices:
            return Match(list(choices).index(answer), "exact", 1.0)
        with self._lock:
            self.load()
            return Match(*self._model.nearest(answer, choices))

    def _needs_sentences(self, match: Match, answer: str, choices: Sequence[str]) -> bool:
        if self.sentence_model is None or is_closed(answer):
            return False
        return self.mode == "paper" or (match.index is None and not all(map(is_closed, choices)))

    def _nearest(self, answer: str, choices: Sequence[str]) -> Match:
        open_choices = [index for index, choice in enumerate(choices) if not is_closed(choice)]
        if not open_choices:
            return match_exactly(answer, choices)
        vectors = torch.stack([self._vectors[choices[index]] for index in open_choices])
        similarities = vectors @ self._vectors[answer]
        best = float(similarities.max())
        # Equal choices differ by the rounding of their batches; the first one within it wins.
        first = open_choices[int((similarities >= best - _TIE).nonzero()[0])]
        return Match(first, "sentence", best) if best >= self.threshold else Match(None, "unmatched", best)

    def _embed(self, texts: Sequence[str]) -> None:
        """Make sure that the vectors of all `texts` are at hand."""
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
            if new:
                self.load()
                vectors = self._model.encode(
                    new, convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False
                )
                # Old vectors go first, so that the ones that this call needs all stay.
                while self._vectors and len(self._vectors) + len(new) > _CACHED_TEXTS:
                    self._vectors.popitem(last=False)
                self._vectors.update(zip(new, vectors.float().cpu()))
            for text in texts:
                self._vectors.move_to_end(text)

    def _reset(self) -> None:
        self._model = None
        self._vectors = OrderedDict()
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._reset()


def match_exactly(answer: str, choices: Sequence[str]) -> Match:
    """The first choice that equals the answer: as written, in normalised form, or in what it says.

    "Yeah, it is." answers a question whose choices are yes and no (:func:`rewards.tifa.closed.polarity`); "there are
    three dogs" one whose choices are numbers (:func:`rewards.tifa.closed.quantity`).

    Example:
        >>> match_exactly("Yes, it is.", ["no", "yes"]).index, match_exactly("There are two.", ["1", "2", "3"]).index
        (1, 1)
        >>> match_exactly("yes or no", ["no", "yes"])
        Match(index=None, how='unmatched', similarity=None)
    """
    folded = [choice.strip().casefold() for choice in choices]
    if answer.strip().casefold() in folded:
        return Match(folded.index(answer.strip().casefold()), "exact", 1.0)
    wanted = normalize_answer(answer)
    normalized = [normalize_answer(choice) for choice in choices]
    if wanted and wanted in normalized:
        return Match(normalized.index(wanted), "exact", 1.0)
    offered = set(normalized)
    meant: str | None = None
    if offered <= {"yes", "no"} or offered >= {"yes", "no"}:
        meant = polarity(answer)
    elif sum(map(is_number, offered)) > 1:
        meant = quantity(answer)
    elif is_number(wanted):  # "two" among "1 dog", "2 dogs"
        normalized = [quantity(choice) or "" for choice in choices]
        meant = wanted if normalized.count(wanted) == 1 else None
    return Match(normalized.index(meant), "exact", 1.0) if meant in normalized else Match(None, "unmatched")


def is_closed(text: str) -> bool:
    """Whether a text means what it says and nothing near it: a number, "yes", "no", "A-", or nothing at all.

    Example:
        >>> is_closed("Yes!"), is_closed("three"), is_closed("red")
        (True, True, False)
    """
    return closed.is_closed(normalize_answer(text))


def _load_sentence_model(name: str, device: str, kind: Callable[[str, str], Any]) -> Any:
    reason: str | None = why_missing(name if "/" in name else f"sentence-transformers/{name}")
    if reason is None or Path(name).exists():
        try:
            return kind(name, device)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
    raise InputError(
        f"sentence model {name!r} cannot be loaded ({reason}); download it, name its directory, or match exactly only: "
        "--sentence-model none on the command line, sentence_model: null in YAML, "
        "AnswerMatcher(sentence_model=None) in Python"
    )


def _sentence_transformer(name: str, device: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(name, device=device, model_kwargs={"use_safetensors": True}).eval()
