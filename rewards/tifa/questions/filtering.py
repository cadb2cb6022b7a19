"""Questions whose answer does not follow from the prompt are dropped (TIFA §3.2).

A text model (UnifiedQA v2) answers each question from the prompt alone, once with the choices and once freely. The
answers are kept beside the question; whether it stays is a pure function of them, so that a mode or a threshold can
be changed without asking again. Paper and released code differ:

| mode | free-form word F1 above | yes/no questions | words compared | UnifiedQA is asked |
|---|---|---|---|---|
| `paper` (§3.2) | 0.7 | checked too | normalised on both sides | as it was trained |
| `code` | 0.6 | exempt from F1 | normalised; of an answer that is a number, the number stated | as it was trained |
| `official` | 0.6 | exempt from F1 | letters of the free-form answer only, in lower case | as the released code asks |

Neither paper nor code says that "three" is "3" or "big ben" is "Big Ben" everywhere: normalising both sides keeps such
questions, which a perfect text model would otherwise drop. `official` is the released code to the letter, faults and
all: an answer with capitals never passes, a fifth choice is never read (`benchmarks/tifa_official.py` compares verdicts
and prompt strings). The released code also drops a repeated question; here the store holds a question once anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewards.errors import InputError
from rewards.runs.files import Row
from rewards.tifa.closed import quantity
from rewards.tifa.normalization import normalize_answer
from rewards.tifa.numbers import is_number
from rewards.tifa.questions.question import Question
from rewards.tifa.questions.unifiedqa import TextAnswerer
from rewards.tifa.store.store import QuestionStore

THRESHOLDS = {"paper": 0.7, "code": 0.6, "official": 0.6}
"""A free-form answer must have a larger word F1 with the right one."""


@dataclass(frozen=True)
class Verdict:
    """Whether a question stays, and why not.

    Attributes:
        kept: Whether it is asked.
        f1: Word F1 of the free-form answer, in [0, 1].
        reason: Why it was dropped, or None.
    """

    kept: bool
    f1: float
    reason: str | None = None


def word_f1(prediction: str, answer: str, mode: str = "paper") -> float:
    """Harmonic mean of the precision and recall of words, split at white space and compared letter by letter.

    Args:
        prediction: A free-form answer.
        answer: The right answer.
        mode: "paper": a word counts as often as it stands in both (the usual F1 of question answering). "code": as the
            released code counts, every word of the answer that stands anywhere in the prediction is a hit, however
            often either repeats it, and only words of the prediction that the answer lacks are misses. "official":
            the same.

    Returns:
        A value in [0, 1]: 1 for two empty texts, 0 for one.

    Example:
        >>> word_f1("red red car", "red car"), word_f1("red red car", "red car", mode="code")
        (0.8, 1.0)
    """
    predicted, wanted = prediction.split(), answer.split()
    if not predicted or not wanted:
        return float(predicted == wanted)
    if mode != "paper":
        hits = sum(word in predicted for word in wanted)
        extra = sum(word not in wanted for word in predicted)
        precision = hits / (hits + extra) if hits + extra else 0.0
    else:
        hits = sum((Counter(predicted) & Counter(wanted)).values())
        precision = hits / len(predicted)
    recall = hits / len(wanted)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def verdict(
    question: Question, multiple_choice: str, free_form: str, mode: str = "paper", threshold: float | None = None
) -> Verdict:
    """Whether a question stays, given what a text model answered (TIFA §3.2).

    Args:
        question: The question.
        multiple_choice: The model's answer with the choices at hand; it must equal the right one, in normalised form
            (UnifiedQA writes lower case) or, in mode "official", letter by letter.
        free_form: Its answer without them.
        mode: "paper", "code" or "official".
        threshold: Of the word F1; default: the mode's own.

    Raises:
        InputError: An unknown mode, a threshold outside [0, 1], or mode "official" without the package word2number.

    Example:
        >>> asked = Question("how many dogs?", ("2", "3"), "3", "three", "counting", "three dogs")
        >>> [verdict(asked, "3", said, mode).kept for said in ("three", "three dogs") for mode in ("paper", "code")]
        [True, True, False, True]
    """
    threshold = _threshold(mode, threshold)
    wanted, chosen = question.answer, multiple_choice
    if mode == "official":
        said = _as_released(free_form, wanted)
    else:
        wanted, chosen, said = (normalize_answer(text) for text in (wanted, chosen, free_form))
        if mode == "code" and is_number(wanted):
            said = quantity(free_form) or said
    f1 = word_f1(said, wanted, mode)
    if chosen != wanted:
        return Verdict(False, f1, f"with choices the answer is {multiple_choice!r}")
    exempt = mode != "paper" and wanted in ("yes", "no")
    if f1 <= threshold and not exempt:
        return Verdict(False, f1, f"freely the answer is {free_form!r}")
    return Verdict(True, f1)


def _threshold(mode: str, threshold: float | None) -> float:
    if mode not in THRESHOLDS:
        raise InputError(f"mode is {mode!r}; expected one of {', '.join(map(repr, THRESHOLDS))}")
    threshold = THRESHOLDS[mode] if threshold is None else threshold
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold!r}; expected a word F1 in [0, 1]")
    return threshold


def _as_released(free_form: str, answer: str) -> str:
    """`UnifiedQAModel.qa` keeps letters, digits and blanks; `question_filter` reads numbers with word2number."""
    text = "".join(character for character in free_form if character.isalnum() or character.isspace()).strip().lower()
    if not answer.isnumeric():
        return text
    try:
        from word2number import w2n
    except ImportError as error:
        raise InputError("mode 'official' reads numbers as the released code: pip install word2number") from error
    try:
        return str(w2n.word_to_num(text))
    except (ValueError, IndexError):  # no number word, or more than it can put together
        return text


@dataclass
class FilterReport:
    """What a run of :func:`filter_questions` did: questions asked now, kept and dropped in all."""

    asked: int = 0
    kept: int = 0
    dropped: int = 0


def filter_questions(
    store: QuestionStore,
    model: TextAnswerer | None = None,
    mode: str = "paper",
    threshold: float | None = None,
    batch_size: int = 32,
    progress: Callable[[int], object] | None = None,
) -> FilterReport:
    """Check every question of a store and record verdict, both answers, mode and model beside it.

    Args:
        store: Its questions that fail are no longer asked, but stay in the file; those that pass are asked again.
        model: Asked about the questions that it was not asked about before; None to decide anew from the recorded
            answers.
        mode: "paper", "code" or "official".
        threshold: Of the word F1; default: the mode's own.
        batch_size: Questions in one call of the model. Each batch is stored at once, so that a killed run goes on
            there.
        progress: Called with the number of questions that are done.

    Raises:
        InputError: As :func:`verdict`; questions without recorded answers and no model; or mode "official" and a model
            that is not asked in the released form.
    """
    report = FilterReport()
    identity = model.identity() if model is not None else None
    waiting: list[Question] = []
    if mode == "official" and identity is not None and identity.get("encoding") != "released":
        raise InputError("mode 'official' needs a text model that is asked in the released form: encoding='released'")
    settings = {"mode": mode, "threshold": _threshold(mode, threshold)}

    def decide(answers: Sequence[tuple[Question, Row]]) -> None:
        decisions = []
        for question, found in answers:
            result = verdict(question, found["multiple_choice"], found["free_form"], mode, threshold)
            kept = {name: found[name] for name in ("model", "multiple_choice", "free_form")}
            checks = kept | settings | {"f1": result.f1, "reason": result.reason}
            decisions.append((question, checks, result.kept))
            report.kept += result.kept
            report.dropped += not result.kept
        store.record_checks(decisions)
        if progress is not None:
            progress(len(answers))

    known = []
    for question, _, checks in store.everything():
        usable = checks is not None and (mode != "official" or checks["model"].get("encoding") == "released")
        if checks is not None and usable and (identity is None or checks["model"] == identity):
            known.append((question, checks))
        else:
            waiting.append(question)
    if waiting and model is None:
        raise InputError(
            f"{len(waiting)} questions were never checked in this form (such as {waiting[0].text!r}); name a model"
        )
    decide(known)
    for start in range(0, len(waiting), batch_size):
        batch = waiting[start : start + batch_size]
        answers = model.answer(batch)  # type: ignore[union-attr]  # there is a model where something waits
        report.asked += len(batch)
        decide([
            (question, {"model": identity, "multiple_choice": chosen, "free_form": free})
            for question, (chosen, free) in zip(batch, answers, strict=True)
        ])  # fmt: skip
    return report
