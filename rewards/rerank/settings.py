"""Settings of a job of reranking; YAML mirrors them (configs/best_of_n_*.yaml)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

from rewards.errors import InputError
from rewards.rerank.rows import FIELDS

RewardKind = Literal["harmonic", "tifa", "function"]
_KINDS: dict[str, str | None] = {"harmonic": "texts", "tifa": "pictures", "function": None}


@dataclass
class RewardSettings:
    """A reward, and how to build it in any process.

    Attributes:
        kind: HarmonicEval (texts), TIFA (pictures), or a function of your own.
        judge: name, path or URL for `rewards.load_judge`, or "shapes-oracle" for the exact reader of the shapes world.
        device, dtype, revision: of the judge.
        judge_options: further arguments of `rewards.load_judge`.
        task, gamma: of HarmonicEval.
        questions: TIFA's question store (SQLite).
        answer, soft, sentence_model: of TIFA; without a sentence model free-form answers are matched exactly.
        function: `package.module:name` of a reward function, an object, or a class without arguments.
    """

    kind: RewardKind = "harmonic"
    judge: str = "shapes-rater"
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    judge_options: dict[str, Any] = field(default_factory=dict)
    task: str = "captioning"
    gamma: float = 0.75
    questions: str | None = None
    answer: Literal["free_form", "choices"] | None = None
    soft: bool = False
    sentence_model: str | None = None
    function: str | None = None


@dataclass
class RerankSettings:
    """What a job of reranking depends on: the same settings and source give the same bytes.

    Attributes:
        reward: what ranks.
        audit: a second reward that scores the same candidates and never ranks: a held-out judge or an oracle.
        group_by: column whose equal values make one item of many rows; None: one row an item.
        images: folder of the pictures; default: the folder of the file.
        columns: our name -> name in the file, e.g. {prompt: caption}.
        shard_size: items committed together; a killed run repeats one shard at most.
        batch_size: candidates handed to the reward at a time.
        max_text: longest text in characters that is given to a judge.
        max_abstained: share of abstentions in a shard of 200 candidates or more above which the job stops.
    """

    reward: RewardSettings = field(default_factory=RewardSettings)
    audit: RewardSettings | None = None
    group_by: str | None = None
    images: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    shard_size: int = 256
    batch_size: int = 128
    max_text: int = 100_000
    max_abstained: float = 0.5

    def __post_init__(self) -> None:
        for name in ("shard_size", "batch_size", "max_text"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if not 0 <= self.max_abstained <= 1:
            raise InputError(f"max_abstained is {self.max_abstained}; a share between 0 and 1 is needed")
        if unknown := sorted(set(self.columns) - set(FIELDS)):
            raise InputError(f"columns has {', '.join(unknown)}; known names are {', '.join(FIELDS)}")
        if self.audit is not None and len({_KINDS[self.reward.kind], _KINDS[self.audit.kind]} - {None}) > 1:
            raise InputError(
                f"reward {self.reward.kind!r} and audit {self.audit.kind!r} judge different things: "
                "one ranks texts, the other pictures"
            )

    @property
    def kind(self) -> str | None:
        """ "texts" or "pictures" where the reward or the audit judges nothing else."""
        return _KINDS[self.reward.kind] or (_KINDS[self.audit.kind] if self.audit is not None else None)


def with_absolute_paths(settings: RerankSettings) -> RerankSettings:
    """The settings with every path of a folder or file in full, so that any process finds it."""

    def placed(reward: RewardSettings) -> RewardSettings:
        return replace(
            reward,
            judge=_full_path(reward.judge),
            questions=os.path.abspath(reward.questions) if reward.questions is not None else None,
            sentence_model=_full_path(reward.sentence_model) if reward.sentence_model is not None else None,
        )

    return replace(
        settings,
        reward=placed(settings.reward),
        audit=placed(settings.audit) if settings.audit is not None else None,
        images=os.path.abspath(settings.images) if settings.images is not None else None,
    )


def _full_path(checkpoint: str) -> str:
    """A checkpoint's folder in full; the name of a preset or of a checkpoint elsewhere stays as it is."""
    return os.path.abspath(checkpoint) if os.sep in checkpoint and os.path.isdir(checkpoint) else checkpoint


def build_reward(settings: RewardSettings, device: str | None = None) -> Any:
    """The reward that the settings describe.

    Args:
        settings: what to build.
        device: where the judge goes, if the settings leave it open.

    Raises:
        InputError: an unknown judge or function, TIFA without questions, or contradictory settings.
    """
    if settings.kind == "function":
        return _imported(settings.function)
    judge = _judge(settings, device)
    if settings.kind == "harmonic":
        from rewards.harmonic.reward import HarmonicEval

        return HarmonicEval(judge, task=settings.task, gamma=settings.gamma)
    if settings.questions is None:
        raise InputError("reward kind 'tifa' needs questions, the path of a question store")
    from rewards.tifa.matching import AnswerMatcher
    from rewards.tifa.reward import TIFA
    from rewards.tifa.store.store import QuestionStore

    store = QuestionStore(settings.questions, create=False)
    matcher = AnswerMatcher(sentence_model=settings.sentence_model)
    return TIFA(judge, store, answer=settings.answer, soft=settings.soft, matcher=matcher)


def build_rewards(settings: RerankSettings, device: str | None = None) -> tuple[Any, Any]:
    """The reward and the audit (or None)."""
    audit = build_reward(settings.audit, device) if settings.audit is not None else None
    return build_reward(settings.reward, device), audit


def reward_identity(settings: RewardSettings, reward: Any) -> dict[str, Any]:
    """What must not change between the start of a job and its resumption."""
    described = {"settings": {k: v for k, v in asdict(settings).items() if k != "device"}}
    if hasattr(reward, "identity"):
        described["reward"] = _stable(reward.identity())
    if (questions := getattr(reward, "questions", None)) is not None:
        described["questions_fingerprint"] = questions.fingerprint()
    return described


def _judge(settings: RewardSettings, device: str | None) -> Any:
    if settings.judge == "shapes-oracle":
        from rewards.shapes.oracle import Oracle

        return Oracle()
    from rewards.judges.loading import load_judge

    options: dict[str, Any] = {
        "device": settings.device or device,
        "dtype": settings.dtype,
        "revision": settings.revision,
        **settings.judge_options,
    }
    return load_judge(settings.judge, **{name: value for name, value in options.items() if value is not None})


def _imported(name: str | None) -> Any:
    if name is None or ":" not in name:
        raise InputError(f"function is {name!r}; package.module:name is needed")
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"function {name!r} cannot be imported: {error}") from error
    return found() if isinstance(found, type) else found


def _stable(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity without what changes while a judge works (the forms of the pictures it has met so far)."""
    return {
        name: _stable(value) if isinstance(value, Mapping) else value
        for name, value in identity.items()
        if name != "pictures"
    }


def local_devices(settings: RewardSettings) -> list[str | None]:
    """One entry a device that a judge may use in this process: every GPU, or None for the reward's own default."""
    if settings.kind == "function" or settings.device is not None:
        return [None]
    import torch

    return [f"cuda:{n}" for n in range(torch.cuda.device_count())] or [None]
