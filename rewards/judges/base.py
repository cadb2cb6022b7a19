"""What a judge can do: the interface only. Judges are loaded by :mod:`rewards.judges.loading`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, SupportsIndex

import torch

from rewards.errors import InputError, RewardsError
from rewards.images import unbatch
from rewards.runs.files import Json

DEFAULT_RATINGS = ("1", "2", "3", "4", "5")

Ability = Literal[
    "rate", "rate_after", "answer", "choose", "mass", "explain", "choose_with_grad", "mass_with_grad", "rate_with_grad"
]  # fmt: skip
"""What a judge may be able to do: the names of :class:`Judge`'s methods."""

GRADIENTS: frozenset[Ability] = frozenset({"choose_with_grad", "mass_with_grad", "rate_with_grad"})
"""The abilities that keep a gradient to the pixels."""

_NO_GRADIENT = (
    "gives no gradient to the pixels: load a judge with weights into this process, or take a method that needs none"
)

_CANNOT: Mapping[Ability, str] = {
    "rate": "answers questions but cannot rate; load a vision-language model",
    "rate_after": "cannot go on from words that are put into its mouth; load a vision-language model",
    "answer": "cannot answer questions; load a VQA or vision-language model",
    "choose": "cannot choose among answers; load a VQA or vision-language model",
    "mass": "does not tell how probable an answer is among all; load a VQA or vision-language model",
    "explain": "cannot explain a rating; load a vision-language model",
    "choose_with_grad": _NO_GRADIENT,
    "mass_with_grad": _NO_GRADIENT,
    "rate_with_grad": _NO_GRADIENT,
}


class UnsupportedAbility(RewardsError):
    """The judge cannot do what was asked: a rater was asked a question, or an answerer for a rating."""


class Ratings(NamedTuple):
    """What :meth:`Judge.rate` returns for N rows and R ratings.

    Attributes:
        probabilities: `(N, R)` float32 on the CPU: probability of each rating among **all** tokens (the variants of a
            rating summed, nothing renormalised). A row that could not be judged is NaN.
        mass: `(N,)` the sum over the ratings, in [0, 1]: how much of the judge's belief is on the scale at all.
        reasons: One entry a row: why the row is NaN, or None.
        unseen: `(N,)` the most probability that may lie on ratings beyond what `probabilities` has, where the judge
            shows a part of its beliefs only (a chat server lists its 20 likeliest tokens); None: it showed all.
    """

    probabilities: torch.Tensor
    mass: torch.Tensor
    reasons: tuple[str | None, ...] = ()
    unseen: torch.Tensor | None = None


class Judge:
    """A model that looks at pictures. It rates (HarmonicEval), or answers and chooses (TIFA), or both.

    Callers pass flat lists, one picture and one text a row; what rows share (the same picture by content, the same
    first tokens) is the judge's business. A row that cannot be judged abstains: NaN, or None for an answer. It is never
    scored 0 and never changes its neighbours.

    Attributes:
        name: What the user loaded.
        revision: Commit of the checkpoint, where known.
        prompts: Prompt templates kept beside the weights (task -> criterion -> template), or None for ordinary judges.
        one_word: How :meth:`mass` is asked a question (GenEval 2's words; a VQA model takes the question alone).
        elsewhere: Whether a call mostly waits for a server, so that several judges may be asked at the same time.
        takes_tensors: Whether pictures that are tensors on its device may stay there.
        load_again: Loads this judge again (or finds it resident) in another process: what a pickled reward carries.
    """

    name: str = ""
    revision: str | None = None
    prompts: Mapping[str, Mapping[str, str]] | None = None
    one_word = "{question} Answer in one word."
    elsewhere: bool = False
    takes_tensors: bool = False
    load_again: Callable[[], Judge] | None = None

    @property
    def abilities(self) -> frozenset[Ability]:
        """What this judge can do, known before it is asked. By default: the methods that its class has."""
        return frozenset(ability for ability in _CANNOT if getattr(type(self), ability) is not getattr(Judge, ability))

    def require(self, *needed: Ability) -> None:
        """Called when a reward is made, so that a judge of the wrong kind is refused before anything is generated.

        Raises:
            UnsupportedAbility: The judge lacks one of these abilities.

        Example:
            >>> Judge().require("rate")
            Traceback (most recent call last):
            ...
            rewards.judges.base.UnsupportedAbility: judge '' answers questions but cannot rate; ...
        """
        for ability in needed:
            if (problem := self.problem(ability)) is not None:
                raise UnsupportedAbility(problem)

    @staticmethod
    def checked(judge: object, *needed: Ability) -> Judge:
        """The judge that a reward is made with, if it is one and has the abilities.

        Raises:
            InputError: It is no judge, such as the name of one.
            UnsupportedAbility: The judge lacks one of these abilities.

        Example:
            >>> Judge.checked("shapes-rater", "rate")
            Traceback (most recent call last):
            ...
            rewards.errors.InputError: judge is 'shapes-rater', not a Judge: ...
        """
        if not isinstance(judge, Judge):
            hint = f": load_judge({judge!r}) makes one of a name" if isinstance(judge, str) else ""
            raise InputError(f"judge is {judge!r}, not a Judge{hint}")
        judge.require(*needed)
        return judge

    def problem(self, ability: Ability) -> str | None:
        """Why the judge lacks an ability, or None where it has it."""
        return None if ability in self.abilities else str(self._unable(ability))

    def identity(self) -> dict[str, Json]:
        """What must be recorded with a score for it to be made again, as JSON: name, revision, weights, dtype.

        It stays the same while the judge works: runs, jobs and caches compare it before they go on.
        """
        return {"name": self.name, "revision": self.revision}

    def rate(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """Probability of each rating as the next token after each prompt.

        Args:
            images: N images (anything :func:`rewards.images.to_pil` takes), or lists of images for rows with several.
            prompts: N plain texts. Control tokens of the judge in them are data, not control.
            ratings: R texts, each one token of the judge.

        Raises:
            UnsupportedAbility: This judge does not rate, or its tokenizer has no single token for a rating.
            InputError: The lists differ in length, or a prompt is not a string.
        """
        raise self._unable("rate")

    def rate_after(
        self, images: Sequence[object], prompts: Sequence[str], said: Sequence[str], ratings: Sequence[str]
    ) -> Ratings:
        """Probability of each rating as the next token after the judge has already said something.

        FLEUR's number is written digit by digit: after "0." comes the first decimal, after "0.8" the second.

        Args:
            images, prompts: N rows, as for :meth:`rate`.
            said: N texts that the judge is taken to have said.
            ratings: R texts, each one token when it follows what was said.

        Raises:
            UnsupportedAbility: This judge cannot, or a rating is no single token there.
        """
        raise self._unable("rate_after")

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """A free-form answer to each question; None where the judge could not answer."""
        raise self._unable("answer")

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice as the whole answer (TIFA eq. 1): one float32 CPU tensor a question.

        A row that could not be judged is NaN. The probabilities need not sum to 1 over the choices.
        """
        raise self._unable("choose")

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """Probability, among all answers there are, that each answer begins as one of some texts (Soft-TIFA).

        A decoder sums the probabilities of the first tokens of the texts, each token once, over its whole vocabulary
        and without renormalising. A VQA model, which answers in a word or two, takes the whole answer.

        Args:
            images: N images, as for :meth:`rate`.
            prompts: N plain texts.
            forms: for each row the spellings of one answer: "two", "Two", " two", "2".

        Returns:
            `(N,)` float32 on the CPU, in [0, 1]; NaN where a row could not be judged.

        Raises:
            UnsupportedAbility: This judge cannot tell, or has no token with which one of the answers begins.
            InputError: The lists differ in length.
        """
        raise self._unable("mass")

    def choose_with_grad(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """:meth:`choose` with the gradient to the pixels, of local judges.

        The value is that of :meth:`choose` on the same pixels: rounding to 8 bits is done in full, and the gradient
        passes it straight through; resizing, cropping, tiling and normalisation are the judge's own, on floats.
        Activations are made anew in the backward pass, a batch of rows at a time, so that memory holds one batch.

        Args:
            images: N pictures `(3, H, W)` in [0, 1] with a gradient. Rows about one picture hold the same tensor, which
                is then encoded once.
            questions, choices: As :meth:`choose`.

        Returns:
            One float32 tensor a question, on the judge's device.

        Raises:
            UnsupportedAbility: This judge has no gradient (it is a server, or of a kind for which none is written).
        """
        raise self._unable("choose_with_grad")

    def mass_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]
    ) -> torch.Tensor:
        """:meth:`mass` with the gradient to the pixels; pictures and result as :meth:`choose_with_grad`."""
        raise self._unable("mass_with_grad")

    def rate_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """:meth:`rate` with the gradient to the pixels; pictures and result as :meth:`choose_with_grad`."""
        raise self._unable("rate_with_grad")

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why each prompt was given its rating, asked in the paper's words: "Why? Tell me the reason."

        Args:
            images: N images, as for :meth:`rate`.
            prompts: The N prompts that were rated.
            ratings: The N ratings that were given, put into the judge's mouth.

        Returns:
            N reasons; None where a row abstains.
        """
        raise self._unable("explain")

    def _unable(self, ability: Ability) -> UnsupportedAbility:
        return UnsupportedAbility(f"judge {self.name!r} {_CANNOT[ability]}")

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        # A pickled judge is loaded again (or found resident), never copied: weights do not travel with a reward.
        if self.load_again is None:
            return super().__reduce_ex__(protocol)
        return self.load_again, ()

    def offload(self) -> None:
        """Move the weights to the CPU until the next call needs them; nothing to do for a judge without weights."""

    def close(self) -> None:
        """Let go of what the judge holds open (connections, files)."""


def well_formed(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD: neither tokenizers nor JSON take them.

    Example:
        >>> well_formed("a\\udcff") == "a\\ufffd"
        True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_rows(images: object, texts: Sequence[str], what: str) -> list[object]:
    """The images as a list (a batched tensor is split, once, so that an image's identity lasts as long as the call).

    Raises:
        InputError: There is not one text a picture, or a text is not a string.
    """
    images = unbatch(images)
    if isinstance(texts, str):
        raise InputError(f"expected a list of {what}s; got one string")
    if len(images) != len(texts):
        raise InputError(f"got {len(images)} images but {len(texts)} {what}s; expected one a row")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{what} {index} is a {type(text).__name__}; expected a string")
    return images


def check_choices(questions: Sequence[str], choices: Sequence[Sequence[str]]) -> None:
    """Raise InputError unless there is one list of choices a question."""
    if len(choices) != len(questions):
        raise InputError(f"got {len(questions)} questions but {len(choices)} lists of choices")
    for index, offered in enumerate(choices):
        if isinstance(offered, str) or not all(isinstance(choice, str) for choice in offered):
            raise InputError(f"the choices of question {index} are {offered!r}; expected a list of strings")
