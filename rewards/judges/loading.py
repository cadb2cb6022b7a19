"""From a name to the judge that fits it, loaded once: the one way to get a judge."""

from __future__ import annotations

import inspect
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from rewards.errors import InputError
from rewards.judges.base import Judge
from rewards.judges.hub import why_missing
from rewards.judges.presets import PRESETS, resolve
from rewards.judges.weights import stamps

Options: TypeAlias = dict[str, Any]
"""Arguments of a judge's class, whichever it is."""

_resident: dict[str, Judge] = {}
_lock = threading.RLock()


def load_judge(
    name: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    **options: Any,
) -> Judge:
    """Load a judge once; the same arguments return the same resident object, as long as its folder's files stay.

    Args:
        name: A checkpoint name or directory, or a preset (:data:`rewards.judges.presets.PRESETS`): `"shapes-vqa"`,
            `"shapes-rater"`, and TIFA's names such as `"blip-large"` or `"vilt"`.
        device: Where the weights live; default: this process's GPU (`LOCAL_RANK`) where there is one, else the CPU.
        dtype: Such as `"bfloat16"`; default: float32 on the CPU, the checkpoint's own elsewhere.
        revision: Branch, tag or commit of the checkpoint.
        options: Further arguments of the judge's class.

    Raises:
        InputError: No such checkpoint, an architecture without a judge, or an unknown option.

    Example:
        >>> load_judge("no/such-judge")
        Traceback (most recent call last):
        ...
        rewards.errors.InputError: ...
    """
    name = os.fspath(name)
    key = repr((name, str(device), str(dtype), revision, sorted(options.items()), stamps(name)))
    with _lock:  # two threads of one process must not load the same weights twice
        if key not in _resident:
            _resident[key] = _open_judge(name, device=device, dtype=dtype, revision=revision, **options)
            _resident[key].load_again = partial(
                load_judge, name, device=device, dtype=dtype, revision=revision, **options
            )
        return _resident[key]


def unload_judges() -> None:
    """Forget every resident judge, so that its memory can be freed."""
    with _lock:
        for judge in _resident.values():
            judge.close()
        _resident.clear()


def _open_judge(name: str, **options: Any) -> Judge:
    """A new judge for a preset, a checkpoint or a directory; see :func:`load_judge`."""
    if "base_url" in options:
        from rewards.judges.elsewhere.chat import ChatJudge

        return _remote(ChatJudge, name, options)
    if name.startswith(("http://", "https://")):
        from rewards.judges.elsewhere.client import RemoteJudge

        return _remote(RemoteJudge, name, options)
    path = resolve(name)
    judge_class = _class_for(_model_type(name, path, options.get("revision"), options.get("trust_remote_code", False)))
    if judge_class is None:
        raise InputError(f"checkpoint {name!r} is not of an architecture that can judge pictures")
    return _build(judge_class, path, {"name": name, **options})


def _remote(judge_class: type[Judge], name: str, options: Options) -> Judge:
    placed = [key for key in ("device", "dtype", "revision") if options.pop(key, None) is not None]
    if placed:
        raise InputError(f"judge {name!r} runs elsewhere: {' and '.join(placed)} cannot be chosen from here")
    return _build(judge_class, name, options)


def _build(judge_class: type[Judge], first: str, options: Options) -> Judge:
    accepted = {
        parameter
        for base in judge_class.__mro__
        if "__init__" in vars(base)
        for parameter in inspect.signature(vars(base)["__init__"]).parameters
    }
    unknown = sorted(set(options) - accepted)
    if unknown:
        raise InputError(f"judge {first!r} has no option {', '.join(unknown)}")
    return judge_class(first, **options)  # type: ignore[call-arg]


def _model_type(name: str, path: str, revision: str | None, trust_remote_code: bool) -> str:
    from transformers import AutoConfig  # a judge behind HTTP does without transformers

    if (reason := why_missing(path, revision)) is not None:
        raise _unknown(name, reason)
    try:
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        if Path(path).is_dir():
            raise InputError(f"no judge can be loaded from directory {path!r}: {_first_line(error)}") from error
        raise _unknown(name, _first_line(error)) from error
    return str(config.model_type)


def _unknown(name: str, reason: str) -> InputError:
    if name in PRESETS:
        return InputError(f"judge {name!r} is the checkpoint {PRESETS[name]!r}, which could not be read: {reason}")
    return InputError(
        f"unknown judge {name!r}: not a preset ({', '.join(sorted(PRESETS))}), not a directory, and no checkpoint of "
        f"that name could be read ({reason})"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _class_for(model_type: str) -> type[Judge] | None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    from rewards.judges.answerers.blip import BlipJudge
    from rewards.judges.answerers.blip2 import Blip2Judge
    from rewards.judges.answerers.git import GitJudge
    from rewards.judges.answerers.vqa import ViltJudge
    from rewards.judges.decoders.vlm import VLMJudge

    answerers: dict[str, type[Judge]] = {
        "blip": BlipJudge, "vilt": ViltJudge, "git": GitJudge, "blip-2": Blip2Judge,
    }  # fmt: skip
    if model_type in answerers:
        return answerers[model_type]
    return VLMJudge if model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES else None
