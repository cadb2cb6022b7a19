"""What `configs/ddpo_*.yaml` and their kin hold. Nothing heavy is imported: a mistyped key is answered at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rewards.build import RewardSettings
from rewards.runs.config import check_number
from rewards.trainers.diffusion.config import check_guidance

SHAPES, SHAPES_FLOW = "shapes", "shapes-flow"


@dataclass
class DiffusionRunConfig:
    """Settings of a whole run; YAML mirrors them.

    Attributes:
        output_dir: The run folder.
        resume: Continue the run in `output_dir` from its newest checkpoint; starts afresh where there is none.
        overwrite: Replace the run in `output_dir`.
        seed: Of training.
        model: A diffusers pipeline by path or Hub name, or a packaged one: "shapes" (a Stable Diffusion) or
            "shapes-flow" (a Stable Diffusion 3, made by flow matching).
        model_revision: Of a Hub name.
        prompts: "shapes", a text file with a prompt a line, a JSON file in TIFA's format, or a question store
            (`.sqlite`).
        num_train_prompts: How many prompts to train on; null for all that are not held out (2,000 in the shapes world).
        num_eval_prompts: Prompts held out for evaluations.
        prompt_seed: Chooses the prompts.
        reward: Trains. A TIFA without `questions` takes those that come with the prompts.
        audit: A second reward that never trains, or null.
        baseline_guidance_scales: Guidance scales at which the base model, and after training the trained one, are
            evaluated for comparison.
        method: How to learn: a name in :data:`rewards.trainers.diffusion.methods.METHODS`, or `package.module:Class`.
        trainer: Any settings of the method (of :class:`rewards.trainers.diffusion.config.DiffusionConfig` and its own).
        stages: Several methods, one after the other: each a mapping with `method` and settings that win over `trainer`.
            Settings of `trainer` that a stage's method does not have are left to the others.
    """

    output_dir: str = "runs/diffusion"
    resume: bool | Literal["auto"] = False
    overwrite: bool = False
    seed: int = 0
    model: str = SHAPES
    model_revision: str | None = None
    prompts: str = SHAPES
    num_train_prompts: int | None = None
    num_eval_prompts: int = 64
    prompt_seed: int = 0
    reward: RewardSettings = field(default_factory=lambda: RewardSettings(kind="tifa", judge="shapes-vqa"))
    audit: RewardSettings | None = None
    baseline_guidance_scales: list[float] = field(default_factory=list)
    method: str = "ddpo"
    trainer: dict[str, Any] = field(default_factory=dict)
    stages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_number("num_eval_prompts", self.num_eval_prompts, at_least=0)
        check_number("num_train_prompts", self.num_train_prompts, at_least=1)
        for scale in self.baseline_guidance_scales:
            check_guidance("baseline_guidance_scales", scale)
