"""The model card of a run, by `huggingface_hub.ModelCard`: what was trained on what, what it gained, how to load it.

Every kind of trainer has a template in `cards/`. The path in the code of a card is relative to the run folder.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from huggingface_hub import ModelCard, ModelCardData

from rewards._version import __version__
from rewards.errors import InputError
from rewards.runs.files import Json, write_whole

_PACKAGE = Path(__file__).resolve().parents[1]
_TEMPLATES = Path(__file__).resolve().parent / "cards"

Template = Literal["language", "diffusion"]
_KINDS: Mapping[Template, tuple[str, str, str]] = {
    "language": ("image-text-to-text", "peft", "transformers"),
    "diffusion": ("text-to-image", "diffusers", "diffusers"),
}


@dataclass(frozen=True)
class ModelFacts:
    """What a model card tells.

    Attributes:
        title: Name of the run.
        method: Name of the method.
        base_model: The checkpoint that was trained.
        revision: Of the checkpoint, or None.
        adapter: Whether an adapter was trained, and not all weights.
        reward: Identity of the reward (judge, revision, prompt hash, weights).
        summary: The held-out results as text.
        failure_rate: Share of training samples that could not be judged; None where it is not known.
        run_folder: The run's.
        processes: How many trained.
        sampling: How a model that draws was sampled: "DDIM, 20 steps, eta 1, guidance 5".
        denoiser: Attribute of the pipeline and class of what was trained, for all weights of a model that draws.
    """

    title: str
    method: str
    base_model: str
    revision: str | None
    adapter: bool
    reward: Mapping[str, Json]
    summary: str
    failure_rate: float | None
    run_folder: Path
    processes: int = 1
    sampling: str = ""
    denoiser: tuple[str, str] = ("unet", "UNet2DConditionModel")


def write_card(path: str | Path, template: Template, facts: ModelFacts) -> None:
    """Write a model card in the Hub's form.

    Args:
        path: `README.md` of the run, or beside the weights.
        template: The kind of trainer.
        facts: What it tells.

    Raises:
        InputError: Metadata that the Hub would not take.
        OSError: The file cannot be written.
    """
    base, setup, expression = base_model(facts.base_model)
    if facts.revision is not None:
        expression += f', revision="{facts.revision}"'
    pipeline, of_adapter, of_weights = _KINDS[template]
    tags = [facts.method.lower(), "reinforcement-learning", *(["lora"] if facts.adapter else [])]
    try:
        data = ModelCardData(
            base_model=base, library_name=of_adapter if facts.adapter else of_weights, pipeline_tag=pipeline, tags=tags
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    card = ModelCard.from_template(
        data,
        template_path=str(_TEMPLATES / f"{template}.md"),
        title=facts.title,
        method=facts.method,
        version=__version__,
        adapter=facts.adapter,
        setup=setup,
        base=expression,
        reward=yaml.safe_dump(dict(facts.reward), sort_keys=False, allow_unicode=True).rstrip(),
        failed="unknown" if facts.failure_rate is None else f"{facts.failure_rate:.2%}",
        summary=facts.summary,
        commands=commands(facts.run_folder, facts.processes),
        sampling=facts.sampling,
        denoiser=facts.denoiser[0],
        denoiser_class=facts.denoiser[1],
    )
    write_whole(path, str(card) + "\n")


def base_model(path: str) -> tuple[str, list[str], str]:
    """How a card names a base model and code loads it.

    Args:
        path: Name on the Hub, or a directory.

    Returns:
        The name for readers, lines of code that must come first, and the expression that `from_pretrained` takes. A
        checkpoint of the shapes world is found in whatever place the package is installed.

    Example:
        >>> base_model("org/model")
        ('org/model', [], '"org/model"')
    """
    if not Path(path).resolve().is_relative_to(_PACKAGE):
        return path, [], f'"{path}"'
    inside = Path(path).resolve().relative_to(_PACKAGE).as_posix()
    setup = ["from pathlib import Path", "import rewards", f'base = Path(rewards.__file__).parent / "{inside}"']
    return f"rewards/{inside}", setup, "base"


def commands(run_folder: str | Path, processes: int) -> str:
    """The section of a card with the command that made the model and the one that draws its curves.

    Args:
        run_folder: The run's.
        processes: How many took part.
    """
    launcher = "python" if processes == 1 else f"accelerate launch --num_processes {processes}"
    lines = [f"{launcher} {shlex.join(sys.argv)}", f"rewards curves {shlex.quote(str(run_folder))}"]
    return "## Commands\n\n```sh\n" + "\n".join(lines) + "\n```"
