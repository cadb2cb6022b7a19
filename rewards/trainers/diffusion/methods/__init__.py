"""From rollouts and scores to updates, a method a file; :func:`method_class` finds one by name."""

from __future__ import annotations

from importlib import import_module

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Method

METHODS = {
    "ddpo": "rewards.trainers.diffusion.methods.ddpo:DDPO",
    "nft": "rewards.trainers.diffusion.methods.nft:NFT",
    "awm": "rewards.trainers.diffusion.methods.awm:AWM",
    "flow_grpo": "rewards.trainers.diffusion.methods.flow_grpo:FlowGRPO",
    "grpo_guard": "rewards.trainers.diffusion.methods.grpo_guard:GRPOGuard",
    "reward_gradient": "rewards.trainers.diffusion.methods.reward_gradient:RewardGradient",
}
"""Name in YAML -> where the method is."""


def method_class(name: str) -> type[Method[DiffusionConfig]]:
    """The method of a name, or of `package.module:Class` for one of your own.

    Raises:
        InputError: There is none.
    """
    module, _, attribute = METHODS.get(name, name).partition(":")
    try:
        found = getattr(import_module(module), attribute) if attribute else None
    except (ImportError, AttributeError) as error:
        raise InputError(f"method {name!r} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"method {name!r} is not known; there are {', '.join(METHODS)}, or package.module:Class")
    return found
