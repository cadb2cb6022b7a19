"""From a name to the judge that fits it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from rewards.errors import InputError
from rewards.judges.base import Judge
from rewards.judges.local import LocalJudge
from rewards.judges.presets import PRESETS, resolve


def open_judge(name: str, **options: Any) -> Judge:
    """A new judge for a preset, a checkpoint or a directory; see :func:`rewards.judges.base.load_judge`."""
    path = resolve(name)
    judge_class = _class_for(_model_type(name, path, options.get("revision"), options.get("trust_remote_code", False)))
    if judge_class is None:
        raise InputError(f"checkpoint {name!r} is not of an architecture that can judge pictures")
    try:
        return judge_class(path, name=name, **options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise InputError(f"judge {name!r}: {str(error).partition(') ')[2] or error}") from error


def _model_type(name: str, path: str, revision: str | None, trust_remote_code: bool) -> str:
    try:
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        if Path(path).is_dir():
            raise InputError(f"no judge can be loaded from directory {path!r}: {_first_line(error)}") from error
        known = ", ".join(sorted(PRESETS))
        raise InputError(
            f"unknown judge {name!r}: not a preset ({known}), not a directory, and no checkpoint of that name could be "
            f"read ({_first_line(error)})"
        ) from error
    return str(config.model_type)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _class_for(model_type: str) -> type[LocalJudge] | None:
    from rewards.judges.blip import BlipJudge
    from rewards.judges.blip2 import Blip2Judge
    from rewards.judges.git import GitJudge
    from rewards.judges.vlm import VLMJudge
    from rewards.judges.vqa import ViltJudge

    answerers: dict[str, type[LocalJudge]] = {
        "blip": BlipJudge, "vilt": ViltJudge, "git": GitJudge, "blip-2": Blip2Judge,
    }  # fmt: skip
    if model_type in answerers:
        return answerers[model_type]
    return VLMJudge if model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES else None
