"""HarmonicEval: a vision-language model rates a text about an image on several criteria (HarmonicEval section 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from rewards.calling import PartFunction, part_functions
from rewards.errors import InputError
from rewards.harmonic.boxes import draw_box
from rewards.harmonic.criteria import get_task, overall_template, prompt_hash, render, resolve_prompts, uses_input
from rewards.harmonic.scores import HarmonicScores
from rewards.harmonic.thoughts import without_thoughts
from rewards.harmonic.weighting import (
    expected_rating,
    harmonic_score,
    harmonic_weights,
    normalize_ratings,
    rating_deviation,
)
from rewards.images import to_pil
from rewards.judges.base import Judge
from rewards.reward import Reward
from rewards.runs.files import Json

Pictures = Image.Image | list[Image.Image]


class HarmonicEval(Reward):
    """The HarmonicEval reward: overall score, criterion scores, deviations and weights from one pass of a judge.

    Use it as it is in TRL (`reward_funcs=HarmonicEval(judge)`), or let each criterion be a reward of its own
    (`reward_funcs=reward.per_criterion()`), or call :meth:`score`.

    A text that cannot be judged (no image, no text, a judge that failed, hardly any probability on the ratings)
    abstains: NaN in scores, None in TRL. It is never scored 0. An empty text, one of blanks only, or one that holds the
    judge's own control or image tokens is judged as the plain text that it is.

    Args:
        judge: a judge that can rate, from :func:`rewards.load_judge`.
        task: `captioning`, `vqa`, `document` or `referring`. The prompts name the kind of text; `vqa` and `document`
            need the question of every text, `referring` the box of the object, which is drawn on the image.
        criteria: names of the criteria. Default: those of `prompts`, else of the judge's own prompts, else the paper's
            five.
        gamma: weighting of the criteria, from 1 (uniform) over 0.5 (inverse variance) to 0 (only the most certain).
            The default is the paper's.
        ratings: the numbers that the judge may answer. Another scale than 1 to 5 needs `prompts`.
        normalize: renormalise the probabilities over the ratings; False takes the paper's formula literally.
        min_rating_mass: a text abstains if on any criterion the judge puts less than this probability on the ratings.
        prompts: criterion -> template with `{text}` and, where a question is asked, `{input}`.
        explain: also ask the judge for its reasons; they are in the scores' details. True: why each criterion's
            likeliest rating was given, a generated sentence a criterion. "overall": why the overall score was given,
            once a text, as the paper asks (section 4.2, after FLEUR).
        order: of the built-in prompts: "shared" puts the text first, so that criteria share its reading; "paper" last
            (`[p_c, t]`, section 2.1), at the cost of reading it once a criterion.
        strip_thoughts: judge a text without its `<think>...</think>` parts.
        name: name in TRL and in the metrics, for telling two of them apart.

    Raises:
        UnsupportedAbility: a judge that cannot rate.
        InputError: for an unknown task, criteria without prompts, or values outside their range.

    Example:
        >>> from PIL import Image
        >>> from rewards import load_judge
        >>> reward = HarmonicEval(load_judge("shapes-rater"), task="captioning")
        >>> scores = reward.score([Image.new("RGB", (32, 32), "white")], ["a red circle"])
        >>> scores.overall.shape, bool((1 <= scores.overall) & (scores.overall <= 5))
        (torch.Size([1]), True)
    """

    judges = "texts"

    def __init__(
        self,
        judge: Judge,
        task: str = "captioning",
        criteria: Sequence[str] | None = None,
        gamma: float = 0.75,
        ratings: Sequence[float] = (1, 2, 3, 4, 5),
        normalize: bool = True,
        min_rating_mass: float = 0.1,
        prompts: Mapping[str, str] | None = None,
        explain: bool | Literal["overall"] = False,
        strip_thoughts: bool = True,
        order: str = "shared",
        name: str = "HarmonicEval",
    ) -> None:
        if explain not in (True, False, "overall"):
            raise InputError(f"explain is {explain!r}: expected True, False or 'overall'")
        if not 0 <= gamma <= 1:
            raise InputError(f"gamma must lie in [0, 1], got {gamma}")
        if not 0 <= min_rating_mass <= 1:
            raise InputError(f"min_rating_mass must lie in [0, 1], got {min_rating_mass}")
        if len(ratings) < 2 or len(set(ratings)) != len(ratings):
            raise InputError(f"ratings must be at least two different numbers, got {list(ratings)}")
        self.judge = Judge.checked(judge, "rate", *(("explain",) if explain else ()))
        self.task = get_task(task)
        self.gamma = gamma
        self.ratings = tuple(ratings)
        self.normalize = normalize
        self.min_rating_mass = min_rating_mass
        self.explain = explain
        self.strip_thoughts = strip_thoughts
        self.prompts = resolve_prompts(self.task, criteria, prompts, judge.prompts, self.ratings, order)
        self.criteria = tuple(self.prompts)
        self.prompt_hash = prompt_hash(task, self.prompts, self._rating_words)
        self.__name__ = name

    @property
    def _rating_words(self) -> tuple[str, ...]:
        return tuple(f"{rating:g}" for rating in self.ratings)

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """What must be recorded beside scores to make them again: settings, prompt hash and the judge's identity."""
        return {
            "reward": self.__name__,
            "task": self.task.name,
            "criteria": list(self.criteria),
            "gamma": self.gamma,
            "ratings": list(self.ratings),
            "normalize": self.normalize,
            "min_rating_mass": self.min_rating_mass,
            "explain": self.explain,
            "strip_thoughts": self.strip_thoughts,
            "prompt_hash": self.prompt_hash,
            "judge": self.judge.identity(),
        }

    def score(
        self,
        images: Sequence[object],
        texts: Sequence[str | None],
        /,
        inputs: Sequence[object] | None = None,
        boxes: Sequence[object] | None = None,
        **columns: Sequence[object],
    ) -> HarmonicScores:
        """Rate N texts.

        Args:
            images: N images in any form that `rewards.images.to_pil` takes; an entry may be a list of several images.
            texts: N texts. None abstains.
            inputs: N questions, for the tasks that have one.
            boxes: N boxes (left, top, right, bottom) in pixels, for `referring`.
            columns: not looked at.

        Returns:
            The scores; a row that cannot be judged abstains, with a reason.

        Raises:
            InputError: if the lists differ in length, or questions or boxes are missing altogether.

        Example:
            >>> from PIL import Image
            >>> from rewards import load_judge
            >>> reward = HarmonicEval(load_judge("shapes-rater"))
            >>> reward.score([Image.new("RGB", (32, 32), "white")] * 2, ["a red circle", None]).criteria.shape
            torch.Size([2, 5])
        """
        return self._score(images, texts, inputs, boxes, grad=False)

    @property
    def gradient_problem(self) -> str | None:
        """The overall score has a gradient where the judge has one: that of every rating's probability."""
        if self.task.needs_box:
            return f"{self.__name__} draws boxes for 'referring', and a picture that is drawn on has no gradient"
        if self.gamma == 0:
            return f"{self.__name__} with gamma=0 takes one criterion or another, which has no gradient: take gamma > 0"
        return self.judge.problem("rate_with_grad")

    def score_with_grad(
        self,
        images: Tensor,
        texts: Sequence[str],
        /,
        inputs: Sequence[object] | None = None,
        **columns: Sequence[object],
    ) -> HarmonicScores:
        """The ratings of pictures' captions, with the gradient of the overall scores to the pictures.

        Args:
            images: `(N, 3, H, W)` in [0, 1], with a gradient.
            texts, inputs, columns: as for :meth:`score`.

        Raises:
            InputError: as :meth:`score`, or for a judge or settings without a gradient.
        """
        if (problem := self.gradient_problem) is not None:
            raise InputError(problem)
        return self._score(images, texts, inputs, None, grad=True)

    def _score(
        self,
        images: Sequence[object] | Tensor,
        texts: Sequence[str | None],
        inputs: Sequence[object] | None,
        boxes: Sequence[object] | None,
        grad: bool,
    ) -> HarmonicScores:
        if isinstance(texts, str):
            raise InputError("texts must be a list of texts, got a single string")
        # By place from here on: a pandas column would be looked up by its labels.
        images, texts = list(images), list(texts)
        inputs, boxes = inputs if inputs is None else list(inputs), boxes if boxes is None else list(boxes)
        self._check_lengths(images, texts, inputs, boxes)
        reasons: list[str | None] = [None] * len(texts)
        rows: list[tuple[int, Pictures]] = []
        picture = _PictureReader()
        plain = [image.detach() if isinstance(image, Tensor) else image for image in images] if grad else images
        for row in range(len(texts)):
            try:
                rows.append((row, self._prepare_row(row, picture, plain, texts, inputs, boxes)))
            except InputError as error:
                reasons[row] = str(error)
        if self.strip_thoughts:
            texts = [without_thoughts(text) if isinstance(text, str) else text for text in texts]
        raw = torch.full((len(texts), len(self.criteria), len(self.ratings)), torch.nan)
        unseen = torch.zeros(raw.shape[:-1])
        if rows:
            templates, places = self.prompts.values(), [row for row, _ in rows]
            prompts = [self._prompt(template, texts, inputs, row) for row in places for template in templates]
            if grad:
                tensors = [images[row] for row in places for _ in templates]
                rated = self.judge.rate_with_grad(tensors, prompts, self._rating_words)
            else:
                shown = [image for _, image in rows for _ in templates]
                rated = self.judge.rate(shown, prompts, self._rating_words)
            probabilities = rated.probabilities.view(len(rows), *raw.shape[1:])
            raw[places] = probabilities.detach().cpu()
            if rated.unseen is not None:
                unseen[places] = rated.unseen.view(len(rows), -1)
            for place, reason in enumerate(rated.reasons):
                row, criterion = rows[place // len(self.criteria)][0], self.criteria[place % len(self.criteria)]
                if reason is not None and reasons[row] is None:
                    reasons[row] = f"{criterion}: {reason}"
        scores = self._aggregate(raw, unseen, reasons)
        if grad and rows:
            scores.overall = self._overall_with_grad(probabilities, places, scores)
        elif self.explain:
            self._explain(scores, dict(rows), texts, inputs)
        return scores

    def per_criterion(self) -> list[PartFunction]:
        """One TRL reward function a criterion, in the order of `criteria`; all share one pass of the judge.

        Weigh them with `GRPOConfig(reward_weights=...)`. Their names are `<name>/<criterion>`.
        """
        return part_functions(self, self.criteria)

    def parts_to_train(self) -> dict[str, float]:
        """The criteria, each with weight 1."""
        return dict.fromkeys(self.criteria, 1.0)

    @property
    def takes_input(self) -> bool:
        """Whether a question belongs to every text: the task has one, or a template asks for it."""
        return self.task.needs_input or any(uses_input(template) for template in self.prompts.values())

    def _prompt(self, template: str, texts: Sequence[str | None], inputs: Sequence[object] | None, row: int) -> str:
        question = inputs[row] if inputs is not None else None
        return render(template, texts[row] or "", question if isinstance(question, str) else None)

    def _check_lengths(
        self,
        images: Sequence[object],
        texts: Sequence[object],
        inputs: Sequence[object] | None,
        boxes: Sequence[object] | None,
    ) -> None:
        if isinstance(texts, str):
            raise InputError("texts must be a list of texts, got a single string")
        for what, given in (("images", images), ("inputs", inputs), ("boxes", boxes)):
            if given is not None and len(given) != len(texts):
                raise InputError(f"got {len(given)} {what} for {len(texts)} texts: expected one a text")
        if self.takes_input and inputs is None:
            raise InputError(f"task {self.task.name!r} rates answers: give the question of every text in inputs=")
        if self.task.needs_box and boxes is None:
            raise InputError(
                "task 'referring' needs the box of every text's object (left, top, right, bottom): in boxes=, or in a "
                "'box' column of the data set"
            )

    def _prepare_row(
        self,
        row: int,
        picture: _PictureReader,
        images: Sequence[object],
        texts: Sequence[str | None],
        inputs: Sequence[object] | None,
        boxes: Sequence[object] | None,
    ) -> Pictures:
        """The row's image as RGB (a list if several), its box drawn; InputError where the row cannot be judged."""
        if not isinstance(texts[row], str):
            raise InputError(f"text {row} is not a string but {type(texts[row]).__name__}")
        if self.takes_input and (inputs is None or not isinstance(inputs[row], str)):
            raise InputError(f"text {row} has no question")
        entry = images[row]
        if entry is None:
            raise InputError(f"text {row} has no image")
        if isinstance(entry, list | tuple):
            several = [picture(image, row) for image in entry]
            if not several:
                raise InputError(f"text {row} has no image")
            image: Pictures = several[0] if len(several) == 1 else several
        else:
            image = picture(entry, row)
        if self.task.needs_box:
            if isinstance(image, list):
                raise InputError(f"text {row} has {len(image)} images: a box can be drawn on one only")
            if boxes is None or boxes[row] is None:
                raise InputError(f"text {row} has no box")
            image = draw_box(image, boxes[row])
        return image

    def _aggregate(self, raw: Tensor, unseen: Tensor, reasons: list[str | None]) -> HarmonicScores:
        """Scores from the judge's raw probabilities (N, C, R), NaN where it said nothing, and what it hid (N, C)."""
        shape = raw.shape[:-1]
        answered = ~raw.isnan().any(-1)
        filled = torch.where(answered.unsqueeze(-1), raw, 0.0)
        normal, mass = normalize_ratings(filled)
        mass = torch.where(answered, mass, torch.nan)
        probabilities = torch.where(answered.unsqueeze(-1), normal if self.normalize else raw, torch.nan)
        usable = answered & (mass >= self.min_rating_mass) & (mass > 0)
        for row in range(len(reasons)):
            if reasons[row] is None and not usable[row].all():
                reasons[row] = self._reason(answered[row], mass[row])
        judged = torch.tensor([reason is None for reason in reasons], dtype=torch.bool)

        criteria, sigma, weights = (torch.full(shape, torch.nan) for _ in range(3))
        overall = torch.full(shape[:1], torch.nan)
        kept = probabilities[judged]
        criteria[judged] = expected_rating(kept, self.ratings)
        hidden = unseen[judged] / mass[judged] if self.normalize else unseen[judged]
        sigma[judged] = rating_deviation(kept, self.ratings, hidden)
        weights[judged] = harmonic_weights(sigma[judged], self.gamma)
        overall[judged] = harmonic_score(kept, self.ratings, self.gamma, hidden)
        return HarmonicScores.of(
            self.criteria, overall, reasons, criteria, sigma, weights, probabilities, mass, self.prompt_hash
        )

    def _overall_with_grad(self, probabilities: Tensor, places: Sequence[int], scores: HarmonicScores) -> Tensor:
        """The overall scores once more, from probabilities (rows, C, R) that carry a gradient."""
        overall = list(scores.overall.to(probabilities.device))
        for row, rated in zip(places, probabilities, strict=True):
            if scores.reasons[row] is not None:
                continue
            kept = normalize_ratings(rated)[0] if self.normalize else rated
            if bool((scores.sigma[row] > 0).all()):
                overall[row] = harmonic_score(kept, self.ratings, self.gamma)
            else:  # the root of a deviation of 0 has no slope: the weights are taken as they stand
                weights = scores.weights[row].to(rated.device)
                overall[row] = (weights * expected_rating(kept, self.ratings)).sum()
        return torch.stack(overall)

    def _explain(
        self,
        scores: HarmonicScores,
        images: Mapping[int, Pictures],
        texts: Sequence[str | None],
        inputs: Sequence[object] | None,
    ) -> None:
        """Add the judge's reason for the likeliest rating of each criterion to the details of the rated texts."""
        judged = [row for row, abstained in enumerate(scores.abstained.tolist()) if not abstained]
        if self.explain == "overall":
            template = overall_template(list(self.prompts.values()))
            said = self.judge.explain(
                [images[row] for row in judged],
                [self._prompt(template, texts, inputs, row) for row in judged],
                [f"{scores.overall[row]:.2f}" for row in judged],
            )
            reasons = dict(zip(judged, said, strict=True))
            scores.details = [{**d, "explanation": reasons.get(row)} for row, d in enumerate(scores.details)]
            return
        likeliest = scores.probabilities.nan_to_num().argmax(-1).tolist()
        asked = [(row, name, column) for row in judged for column, name in enumerate(self.criteria)]
        said = self.judge.explain(
            [images[row] for row, _, _ in asked],
            [self._prompt(self.prompts[name], texts, inputs, row) for row, name, _ in asked],
            [self._rating_words[likeliest[row][column]] for row, _, column in asked],
        )
        explanations: list[dict[str, str | None]] = [dict.fromkeys(self.criteria) for _ in texts]
        for (row, name, _), reason in zip(asked, said, strict=True):
            explanations[row][name] = reason
        scores.details = [
            {**details, "explanations": reasons} for details, reasons in zip(scores.details, explanations, strict=True)
        ]

    def _reason(self, answered: Tensor, mass: Tensor) -> str:
        for criterion, said, weight in zip(self.criteria, answered.tolist(), mass.tolist()):
            if not said:
                return f"{criterion}: the judge gave no rating"
            if weight < self.min_rating_mass or weight == 0:
                return f"{criterion}: rating mass {weight:.3g} is below {self.min_rating_mass:g}"
        raise AssertionError("asked for the reason of a row that was judged")


class _PictureReader:
    """Reads pictures as RGB, one object once: the completions of a group share theirs."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[object, Image.Image]] = {}

    def __call__(self, image: object, row: int) -> Image.Image:
        if id(image) not in self._read:
            # The source is kept beside the picture: its id must not be given to another object meanwhile.
            self._read[id(image)] = (image, to_pil(image, index=row))
        return self._read[id(image)][1]
