"""What a job needs to know of the settings of its rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rewards.build import RewardSettings
from rewards.errors import InputError
from rewards.runs.files import Json

_KINDS = {"harmonic": "texts", "rubric": "texts", "tifa": "pictures", "vqascore": "pictures"}


def judged_kind(settings: RewardSettings) -> str | None:
    """ "texts" or "pictures" where the reward judges nothing else, else None.

    Example:
        >>> judged_kind(RewardSettings(judge="shapes-rater"))
        'texts'
    """
    kinds = {judged_kind(reward) for reward in settings.rewards} | {_KINDS.get(settings.kind)}
    return next((kind for kind in sorted(kinds - {None}, key=str)), None)


def checklist_columns(settings: RewardSettings) -> list[list[str]]:
    """The columns from which rubrics take each row's checklist, a group a column.

    Example:
        >>> checklist_columns(RewardSettings(kind="rubric", judge="shapes-vqa", column="checks"))
        [['checks']]
    """
    rewards = (settings, *settings.rewards)
    return [[reward.column] for reward in rewards if reward.kind == "rubric" and reward.items is None]


def refuse_memory(settings: RewardSettings) -> None:
    """Refuse a reward whose score of a row depends on the rows before or beside it.

    Raises:
        InputError: a combined reward with running scales, or a rubric weighted by contrast.
    """
    for reward in (settings, *settings.rewards):
        if reward.kind == "rubric" and reward.weighting == "contrast":
            raise InputError("a rubric with weighting='contrast' scores by the rows beside; use 'stated'")
        if reward.standardize != "none":
            raise InputError(
                f"a combined reward with standardize={reward.standardize!r} scores by what it saw before; use 'none'"
            )


def described(settings: RewardSettings) -> dict[str, Json]:
    """The settings that a score depends on: all but the devices, and where judgments are kept."""
    return _without(asdict(settings))


def _without(settings: Mapping[str, Json]) -> dict[str, Json]:
    kept = {name: value for name, value in settings.items() if name not in ("device", "cache")}
    parts = kept["rewards"]
    assert isinstance(parts, list)
    return {**kept, "rewards": [_without(part) for part in parts]}
