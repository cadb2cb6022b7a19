"""From settings to judges and rewards: the one place where names in YAML and on the command line become objects.

The same block of settings, copied unchanged, means the same reward in a trainer, in a job and on the command line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from rewards.errors import InputError
from rewards.tifa import SENTENCE_MODEL

if TYPE_CHECKING:
    from rewards.judges.base import Judge
    from rewards.reward import Reward

ORACLE = "shapes-oracle"
"""The exact reader of the shapes world, as the name of a judge."""


@dataclass
class RewardSettings:
    """A reward, and how to build it in any process.

    Args:
        kind: `harmonic` (:class:`~rewards.HarmonicEval`), `tifa` (:class:`~rewards.TIFA`), `vqascore`
            (:class:`~rewards.VQAScore`), `rubric` (:class:`~rewards.Rubric`), `function` (of a user's own) or
            `combined` (a weighted sum of others).
        name: of its curves; default: the reward's own.
        judge: name, directory, preset or URL for :func:`rewards.load_judge`, or `shapes-oracle`.
        device, dtype, revision: of the judge; by default it lives on its process's own device.
        judge_options: further arguments of `load_judge`, such as `base_url` of a chat server.
        cache: SQLite file in which judgments are kept for later runs.
        task, criteria, gamma, normalize, min_rating_mass, prompts, explain, order: of HarmonicEval.
        questions: TIFA's question store (SQLite).
        answer, soft, aggregate, dependencies, none_of_these: of TIFA; `soft: mass` is Soft-TIFA.
        matching: how free-form answers become choices: `code`, `paper`, or `official` as the released scorer does.
        sentence_model: SBERT for TIFA's free-form answers; None matches exactly.
        wording: of VQAScore.
        items, column, weighting: of a rubric; gamma and soft are its as well.
        function: `package.module:name` of a function, a reward, or a class without arguments.
        rewards: of a combined reward, each with its own settings and weight.
        standardize, on_abstain: of :class:`~rewards.Combined`.
        weight: in the sum, for a part of a combined reward.
        optional: in the sum: its None means "does not apply" and adds nothing, instead of "could not be judged".
    """

    kind: Literal["harmonic", "tifa", "vqascore", "rubric", "function", "combined"] = "harmonic"
    name: str | None = None
    judge: str | None = None
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    judge_options: dict[str, Any] = field(default_factory=dict)
    cache: str | None = None
    task: str = "captioning"
    criteria: list[str] | None = None
    gamma: float = 0.75
    normalize: bool = True
    min_rating_mass: float = 0.1
    prompts: dict[str, str] | None = None
    explain: bool | Literal["overall"] = False
    order: Literal["shared", "paper"] = "shared"
    questions: str | None = None
    answer: Literal["free_form", "choices"] | None = None
    soft: bool | Literal["mass"] = False
    aggregate: Literal["arithmetic", "geometric", "all"] = "arithmetic"
    dependencies: Literal["none", "hard", "soft"] = "none"
    none_of_these: bool = False
    matching: Literal["code", "paper", "official"] = "code"
    sentence_model: str | None = SENTENCE_MODEL
    wording: Literal["vqascore", "geneval2"] = "vqascore"
    items: list[Any] | None = None
    column: str = "rubric"
    weighting: Literal["stated", "harmonic", "contrast"] = "stated"
    function: str | None = None
    rewards: list[RewardSettings] = field(default_factory=list)
    standardize: Literal["none", "running"] = "none"
    on_abstain: Literal["abstain", "renormalize"] = "abstain"
    weight: float = 1.0
    optional: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise InputError(f"the weight of a reward must be a finite number, got {self.weight}")
        if self.kind not in ("function", "combined") and self.judge is None:
            raise InputError(f"a reward of kind {self.kind!r} needs a judge: a name, directory, preset or URL")
        if (self.kind == "function") != (self.function is not None):
            raise InputError(
                f"a reward of kind {self.kind!r} with function {self.function!r}: kind 'function' and function "
                "(package.module:name) go together"
            )
        if (self.kind == "combined") != bool(self.rewards):
            raise InputError(f"a reward of kind {self.kind!r} has {len(self.rewards)} rewards: 'combined' needs some")


def build_reward(settings: RewardSettings, device: str | None = None) -> Reward:
    """The reward that the settings describe.

    Args:
        settings: what to build.
        device: where judges go, if the settings leave it open.

    Raises:
        InputError: an unknown judge or function, a judge without the ability, TIFA without questions.

    Example:
        >>> build_reward(RewardSettings(judge="shapes-rater")).__name__
        'HarmonicEval'
    """
    reward = _BUILDERS[settings.kind](settings, device)
    if settings.name is not None:
        reward.__name__ = settings.name
    return reward


def build_judge(settings: RewardSettings, device: str | None = None) -> Judge:
    """The judge that the settings name, behind its cache where they name one.

    Raises:
        InputError: no judge is named, or it cannot be loaded.
    """
    judge = open_judge(
        settings.judge, device=settings.device or device, dtype=settings.dtype, revision=settings.revision,
        **settings.judge_options,
    )  # fmt: skip
    if settings.cache is None:
        return judge
    from rewards.judges.cache import CachedJudge

    return CachedJudge(judge, settings.cache)


def open_judge(name: str | None, **options: Any) -> Judge:
    """:func:`rewards.load_judge`, for the oracle of the shapes world too; options that are None are left out."""
    if name is None:
        raise InputError("no judge is named: give a name, directory, preset or URL")
    if name == ORACLE:
        from rewards.shapes.oracle import Oracle

        return Oracle()
    from rewards.judges.loading import load_judge

    return load_judge(name, **{key: value for key, value in options.items() if value is not None})


def with_absolute_paths(settings: RewardSettings) -> RewardSettings:
    """The settings with every file and folder in full, so that a process started elsewhere finds them."""

    def full(name: str | None) -> str | None:
        return os.path.abspath(name) if name is not None and os.sep in name and os.path.isdir(name) else name

    def file(name: str | None) -> str | None:
        return None if name is None else os.path.abspath(name)

    return replace(
        settings,
        judge=full(settings.judge),
        sentence_model=full(settings.sentence_model),
        questions=file(settings.questions),
        cache=file(settings.cache),
        rewards=[with_absolute_paths(reward) for reward in settings.rewards],
    )


def judge_devices(settings: RewardSettings) -> list[str | None]:
    """One entry a device that a judge may use in this process: every GPU, or None for the reward's own default."""
    if settings.kind == "function" or settings.device is not None:
        return [None]
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or [None]


def _harmonic(settings: RewardSettings, device: str | None) -> Reward:
    from rewards.harmonic.reward import HarmonicEval

    return HarmonicEval(
        build_judge(settings, device),
        task=settings.task,
        criteria=settings.criteria,
        gamma=settings.gamma,
        normalize=settings.normalize,
        min_rating_mass=settings.min_rating_mass,
        prompts=settings.prompts,
        explain=settings.explain,
        order=settings.order,
    )


def _tifa(settings: RewardSettings, device: str | None) -> Reward:
    if settings.questions is None:
        raise InputError("a reward of kind 'tifa' needs questions: the path of a question store")
    from rewards.tifa.matching import AnswerMatcher
    from rewards.tifa.reward import TIFA
    from rewards.tifa.store.store import QuestionStore

    store = QuestionStore(settings.questions, create=False)
    matcher = AnswerMatcher(settings.sentence_model, mode=settings.matching)
    kind = TIFA
    if settings.judge == ORACLE:
        from rewards.shapes.oracle_tifa import OracleTIFA

        kind = OracleTIFA
    return kind(
        build_judge(settings, device),
        store,
        answer=settings.answer,
        soft=settings.soft,
        matcher=matcher,
        none_of_these=settings.none_of_these,
        aggregate=settings.aggregate,
        dependencies=settings.dependencies,
    )


def _vqascore(settings: RewardSettings, device: str | None) -> Reward:
    from rewards.tifa.vqascore import VQAScore

    return VQAScore(build_judge(settings, device), wording=settings.wording)


def _rubric(settings: RewardSettings, device: str | None) -> Reward:
    from rewards.rubric.reward import Rubric

    if settings.soft == "mass":
        raise InputError("a rubric's soft is true or false; 'mass' is TIFA's")
    return Rubric(
        build_judge(settings, device),
        settings.items,
        column=settings.column,
        soft=settings.soft,
        weighting=settings.weighting,
        gamma=settings.gamma,
    )


def _function(settings: RewardSettings, device: str | None) -> Reward:
    from rewards.functions import import_reward

    return import_reward(settings.function or "")


def _combined(settings: RewardSettings, device: str | None) -> Reward:
    from rewards.combined import Combined

    rewards = [build_reward(part, device) for part in settings.rewards]
    return Combined(
        rewards,
        [part.weight for part in settings.rewards],
        standardize=settings.standardize,
        on_abstain=settings.on_abstain,
        optional=[r.__name__ for r, part in zip(rewards, settings.rewards, strict=True) if part.optional],
    )


_BUILDERS: Mapping[str, Callable[[RewardSettings, str | None], Reward]] = {
    "harmonic": _harmonic,
    "tifa": _tifa,
    "vqascore": _vqascore,
    "rubric": _rubric,
    "function": _function,
    "combined": _combined,
}
