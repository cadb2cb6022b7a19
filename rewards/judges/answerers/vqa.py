"""What TIFA's answerers share, and the plainest of them, ViLT. The others: `blip.py`, `git.py`, `blip2.py`."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, Unpack

import torch
from torch.utils.checkpoint import checkpoint
from transformers import ViltForQuestionAnswering

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.base import UnsupportedAbility, check_choices, check_rows
from rewards.judges.local import LocalJudge, LocalOptions
from rewards.judges.pictures import pictures_of_rows, straight_through, with_gradient
from rewards.judges.prompting import PlainText

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

LONGEST_ANSWER = 49
"""Most new tokens of an answer: the official scorer's `max_length=50`, less the start token."""

ROWS_A_BATCH = 64
"""Questions of the first batch; halved for good whenever the device runs out of memory."""


class Asked(NamedTuple):
    """A batch of Q questions about P distinct pictures.

    Attributes:
        pixels: The image processor's tensors, `(P, ...)` on the device.
        owner: `(Q,)` which picture each question is about; questions come picture by picture.
        counts: P, how many of the questions are about each picture: known here without waiting for the device.
        questions: Q texts, without control tokens.
        choices: Q lists of choices; empty lists where the answer is free.
    """

    pixels: dict[str, torch.Tensor]
    owner: torch.Tensor
    counts: list[int]
    questions: list[str]
    choices: list[list[str]]


class VQAJudge(LocalJudge):
    """An answerer. Each distinct picture of a call is preprocessed and encoded once, whatever is asked about it."""

    one_word = "{question}"

    def __init__(self, path: str, *, rows_a_batch: int = ROWS_A_BATCH, **options: Unpack[LocalOptions]) -> None:
        super().__init__(path, **options)
        self.rows_a_batch = rows_a_batch
        self.tokenizer = self.processor.tokenizer
        self._plain = PlainText(self.processor)

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """Free-form answers; None where a row's picture cannot be read."""
        images = check_rows(images, questions, "question")
        answers: list[str | None] = [None] * len(questions)
        with self._lock:
            for rows, texts in self._batches(images, questions, [[] for _ in questions], self._answer):
                for row, text in zip(rows, texts):
                    answers[row] = text
        return answers

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """Probability of the whole answer in any of its spellings; see :meth:`rewards.judges.base.Judge.mass`."""
        return _masses(self.choose(images, prompts, [list(self._distinct(spelled)) for spelled in forms]))

    def mass_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]
    ) -> torch.Tensor:
        """As :meth:`mass`; see :meth:`rewards.judges.base.Judge.mass_with_grad`."""
        return _masses(self.choose_with_grad(images, prompts, [list(self._distinct(spelled)) for spelled in forms]))

    def _distinct(self, spelled: Sequence[str]) -> Iterable[str]:
        """One spelling of each that the tokenizer tells apart: "Yes" and "yes" are one answer to an uncased model."""
        ids = {tuple(self.tokenizer(form.strip())["input_ids"]): form.strip() for form in reversed(spelled)}
        known = [form for found, form in ids.items() if self.tokenizer.unk_token_id not in found]
        if not known:
            raise UnsupportedAbility(f"none of {list(spelled)} is an answer in the words of judge {self.name!r}")
        return known

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice as the whole answer; NaN where a row's picture cannot be read."""
        images = check_rows(images, questions, "question")
        check_choices(questions, choices)
        scores = [torch.full((len(offered),), torch.nan) for offered in choices]
        with self._lock, torch.no_grad():
            for rows, found in self._batches(images, questions, choices, self._choose):
                copied = torch.cat(found).float().cpu()  # the one place where the host waits for the batch
                for row, score in zip(rows, copied.split([len(one) for one in found])):
                    scores[row] = score
        return scores

    def choose_with_grad(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """See :meth:`rewards.judges.base.Judge.choose_with_grad`."""
        self.require("choose_with_grad")
        check_rows(images, questions, "question")
        check_choices(questions, choices)
        scores: dict[int, torch.Tensor] = {}
        with self._lock:
            for rows, found in self._batches(with_gradient(images), questions, choices, self._choose_twice):
                scores |= dict(zip(rows, found, strict=True))
        unread = (torch.full((len(offered),), torch.nan, device=self.device) for offered in choices)
        return [scores.get(row, nothing).float() for row, nothing in enumerate(unread)]

    def _choose_twice(self, asked: Asked) -> list[torch.Tensor]:
        """:meth:`_choose` whose activations are made anew in the backward pass."""

        def choose(asked: Asked) -> list[torch.Tensor]:
            with self._lock:  # some models keep the picture at work
                return self._choose(asked)

        found: list[torch.Tensor] = checkpoint(choose, asked, use_reentrant=False)
        return found

    def _answer(self, asked: Asked) -> list[str]:
        raise NotImplementedError

    def _choose(self, asked: Asked) -> list[torch.Tensor]:
        """Log-probabilities of each question's choices, with whatever gradient the pixels have."""
        raise NotImplementedError

    def _batches(
        self,
        images: Sequence[object],
        questions: Sequence[str],
        choices: Sequence[Sequence[str]],
        run: Callable[[Asked], list[Result]],
    ) -> Iterator[tuple[list[int], list[Result]]]:
        """Rows and their results, batch by batch; rows without a usable picture are in none."""
        self._onload()
        pictures, rows_of = self._see(images)
        for keys in _of_equal_shape(pictures):
            rows = [row for key in keys for row in rows_of[key]]
            place = {row: at for at, key in enumerate(keys) for row in rows_of[key]}
            done = 0
            while done < len(rows):
                part = _whole_pictures(rows[done:], place, self.rows_a_batch)
                used = list(dict.fromkeys(place[row] for row in part))
                position = {at: number for number, at in enumerate(used)}
                owner = [position[place[row]] for row in part]
                asked = Asked(
                    {name: torch.cat([pictures[keys[at]][name] for at in used]) for name in pictures[keys[0]]},
                    torch.tensor(owner, device=self.device),
                    [owner.count(at) for at in range(len(used))],
                    [self._plain(questions[row]) for row in part],
                    [[self._plain(choice) for choice in choices[row]] for row in part],
                )
                try:
                    yield part, run(asked)
                except torch.OutOfMemoryError:
                    if len(part) == 1:
                        logger.warning("judge %s abstains: row %d does not fit into memory", self.name, part[0])
                        done += 1
                    self.rows_a_batch = max(1, len(part) // 2)
                    logger.warning("judge %s: out of memory; %d rows a batch from now on", self.name, self.rows_a_batch)
                    continue
                done += len(part)

    def _see(self, images: Sequence[object]) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, list[int]]]:
        """The inputs of each distinct picture, and the rows about it."""
        pictures: dict[str, dict[str, torch.Tensor]] = {}
        rows_of: dict[str, list[int]] = defaultdict(list)
        for index, read in enumerate(pictures_of_rows(images, keep_tensors=self.takes_tensors)):
            try:
                one = _only(read, index)
                if one.key not in pictures:
                    pictures[one.key] = self._preprocess(one, index)
            except InputError as error:
                logger.warning("judge %s abstains: %s", self.name, error)
                continue
            rows_of[one.key].append(index)
        return pictures, rows_of

    def _preprocess(self, one: Picture, index: int) -> dict[str, torch.Tensor]:
        exact = self._processed(one.pixels, index)
        return exact if one.source is None else straight_through(exact, self._processed(one.source, index))

    def _processed(self, pixels: object, index: int) -> dict[str, torch.Tensor]:
        on_device = {"device": self.device} if isinstance(pixels, torch.Tensor) else {}
        try:
            inputs = self.processor.image_processor(pixels, return_tensors="pt", **on_device)
        except ValueError as error:  # a side of zero pixels after resizing, for example
            reason = " ".join(str(error).split())
            raise InputError(f"image {index}: the judge's processor refuses it: {reason}") from error
        return {
            key: value.to(self.device, self.model.dtype if value.is_floating_point() else value.dtype)
            for key, value in inputs.items()
        }


def _masses(chosen: Sequence[torch.Tensor]) -> torch.Tensor:
    """Probability of one answer from the log-probabilities of its spellings."""
    return torch.stack([row.exp().sum().clamp(max=1.0) for row in chosen]) if chosen else torch.empty(0)


def _only(read: tuple[Picture, ...] | InputError, row: int) -> Picture:
    if isinstance(read, InputError):
        raise read
    if len(read) > 1:
        raise InputError(f"row {row} has {len(read)} images; a VQA model looks at one at a time")
    return read[0]


def _whole_pictures(rows: Sequence[int], place: Mapping[int, int], most: int) -> list[int]:
    """The first rows, at most so many, up to the end of a picture: one that is cut in two is encoded twice.

    Args:
        rows: Rows, picture by picture.
        place: The picture of each row.
        most: How many rows make a batch. A picture with more is cut after all.

    Example:
        >>> _whole_pictures([0, 1, 2, 3, 4], {0: 0, 1: 0, 2: 1, 3: 1, 4: 1}, most=4)
        [0, 1]
    """
    end = min(most, len(rows))
    while 0 < end < len(rows) and place[rows[end]] == place[rows[end - 1]]:
        end -= 1
    return list(rows[: end or most])


def _of_equal_shape(pictures: dict[str, dict[str, torch.Tensor]]) -> list[list[str]]:
    """Keys of pictures whose inputs can be stacked (ViLT keeps each picture's proportions)."""
    groups: dict[tuple[tuple[int, ...], ...], list[str]] = defaultdict(list)
    for key, inputs in pictures.items():
        groups[tuple(tuple(value.shape) for value in inputs.values())].append(key)
    return list(groups.values())


def by_length(sequences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Indices of sequences of equal length, so that a batch needs no padding.

    Example:
        >>> list(by_length([[1], [2, 3], [4]]))
        [[0, 2], [1]]
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, sequence in enumerate(sequences):
        groups[len(sequence)].append(index)
    yield from groups.values()


class ViltJudge(VQAJudge):
    """ViLT for question answering: a classifier over a closed list of answers (3,129 for the VQAv2 checkpoint)."""

    model_class = ViltForQuestionAnswering

    @torch.no_grad()
    def _answer(self, asked: Asked) -> list[str]:
        labels = self.model.config.id2label
        return [labels[likeliest] for likeliest in self._log_probs(asked).argmax(-1).tolist()]

    def _choose(self, asked: Asked) -> list[torch.Tensor]:
        """A choice that is no label of the classifier has log-probability -inf: it cannot be this model's answer."""
        ids = {label.strip().lower(): index for index, label in self.model.config.id2label.items()}
        log_probs = self._log_probs(asked)
        impossible = log_probs.new_full((len(log_probs), 1), -torch.inf)
        counts = [len(offered) for offered in asked.choices]
        rows = [row for row, count in enumerate(counts) for _ in range(count)]
        labels = [ids.get(choice.strip().lower(), -1) for offered in asked.choices for choice in offered]
        at = torch.tensor([rows, labels], device=self.device)
        return list(torch.cat([log_probs, impossible], dim=1)[at[0], at[1]].split(counts))

    def _distinct(self, spelled: Sequence[str]) -> Iterable[str]:
        """The classifier's answers know no case."""
        return {form.strip().lower(): None for form in spelled}

    def _log_probs(self, asked: Asked) -> torch.Tensor:
        """`(Q, labels)`: the classifier's logits as a softmax over its answers, as its argmax reads them."""
        encoded = self.tokenizer(
            asked.questions,
            padding=True,
            truncation=True,
            max_length=self.model.config.max_position_embeddings,
            padding_side="right",
            return_tensors="pt",
        ).to(self.device)
        # Words and patches attend to each other from the first layer on: nothing of the picture can be shared.
        pixels = {name: value[asked.owner] for name, value in asked.pixels.items()}
        # ViLT shuffles a picture's patches with the global random state: the order, and so the rounding, must not
        # depend on what was drawn before, nor may a judge disturb a trainer's random numbers.
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(0)
            return self.model(**encoded, **pixels).logits.float().log_softmax(-1)
