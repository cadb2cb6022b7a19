"""Short names of judges: the ones that ship with the package, and TIFA's names for its answerers."""

from __future__ import annotations

from pathlib import Path

from rewards.errors import InputError

_SHAPES = Path(__file__).resolve().parents[1] / "shapes" / "weights"

PRESETS: dict[str, str] = {
    "shapes-vqa": str(_SHAPES / "vqa_judge"),
    "shapes-rater": str(_SHAPES / "rater"),
    # The names of the official TIFA scorer (tifascore/vqa_models.py) and of its paper's tables.
    "blip-base": "Salesforce/blip-vqa-base",
    "blip-large": "Salesforce/blip-vqa-capfilt-large",
    "blip-vqa-base": "Salesforce/blip-vqa-base",
    "blip-vqa-capfilt-large": "Salesforce/blip-vqa-capfilt-large",
    "git-base": "microsoft/git-base-vqav2",
    "git-large": "microsoft/git-large-vqav2",
    "vilt": "dandelin/vilt-b32-finetuned-vqa",
    "blip2-flant5xl": "Salesforce/blip2-flan-t5-xl",
}

NEEDS_A_SERVER = ("mplug-large", "ofa-large")
"""TIFA's answerers that need modelscope, in an environment of their own (rewards/judges/elsewhere/modelscope)."""


def resolve(name: str) -> str:
    """The checkpoint name or directory behind a preset; any other name is returned as it is.

    Raises:
        InputError: The preset needs a server, or its packaged weights are not installed.

    Example:
        >>> resolve("vilt")
        'dandelin/vilt-b32-finetuned-vqa'
    """
    if name in NEEDS_A_SERVER:
        raise InputError(
            f"judge {name!r} runs on modelscope in an environment of its own: start a server there as "
            'rewards/judges/elsewhere/modelscope/README.md describes and use load_judge("http://host:port")'
        )
    target = PRESETS.get(name, name)
    if target.startswith(str(_SHAPES)) and not Path(target).is_dir():
        raise InputError(f"the packaged weights of judge {name!r} are missing: no directory {target}")
    return target
