"""A whole run from one config: what `examples/ddpo_sd.py` and the demo call."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelerate import PartialState
from diffusers import DiffusionPipeline

from rewards.build import ORACLE, RewardSettings, build_reward
from rewards.errors import InputError
from rewards.runs.config import load_config
from rewards.runs.files import Json, finite_or_none, write_json
from rewards.runs.folder import RunFolder
from rewards.tifa.store.store import QuestionStore
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods import method_class
from rewards.trainers.diffusion.methods.base import Method
from rewards.trainers.diffusion.plan import split_prompts
from rewards.trainers.diffusion.policy.base import DTYPES
from rewards.trainers.diffusion.prompts import split_of_run
from rewards.trainers.diffusion.settings import SHAPES, SHAPES_FLOW, DiffusionRunConfig
from rewards.trainers.diffusion.summary import baseline, summarize

_WEIGHTS = Path(__file__).resolve().parents[2] / "shapes" / "weights"
PACKAGED = {SHAPES: _WEIGHTS / "stable_diffusion", SHAPES_FLOW: _WEIGHTS / "stable_diffusion_3"}
"""The pipelines that come with the package -> their folders."""


def run_diffusion(config: DiffusionRunConfig) -> dict[str, Json]:
    """Train a pipeline and compare before and after on held-out prompts.

    Args:
        config: The run.

    Returns:
        The summary (see :func:`rewards.trainers.diffusion.summary.summarize`), which is also written to `summary.json`
        in the run folder.

    Raises:
        InputError: A model, judge, file or setting that cannot be used, or a folder that another process works in.
        RewardsError: The run was stopped (see :meth:`DiffusionTrainer.train`).
    """
    started = time.perf_counter()
    new_methods(config)  # a mistake in the settings makes no folder
    lock = RunFolder(Path(config.output_dir)).lock() if PartialState().is_main_process else None
    try:
        return _trained(config, new_trainer(config), started)
    finally:
        if lock is not None:
            lock.release()


def _trained(config: DiffusionRunConfig, trainer: DiffusionTrainer, started: float) -> dict[str, Json]:
    trainer.train()
    baselines = [baseline(trainer, scale) for scale in config.baseline_guidance_scales if config.num_eval_prompts]
    result = summarize(trainer, baselines) | {"seconds": time.perf_counter() - started}
    if trainer.accelerator.is_main_process:
        write_json(Path(config.output_dir) / "summary.json", finite_or_none(result))
    return result


def new_trainer(config: DiffusionRunConfig) -> DiffusionTrainer:
    """The trainer with its pipeline, prompts and rewards, not yet started.

    Raises:
        InputError: As :func:`run_diffusion`.
    """
    methods = new_methods(config)
    train_prompts, eval_prompts, store = split_of_run(config)
    prompts, _ = split_prompts([*train_prompts, *eval_prompts])
    wanted = [_completed(settings, store) for settings in (config.reward, config.audit) if settings is not None]
    for settings in wanted:
        _check_questions(settings, prompts)
    check_pipeline(config.model, config.model_revision)
    # From here on judges and models load: what can be wrong without them was said before.
    reward, *audits = [build_reward(settings, str(PartialState().device)) for settings in wanted]
    audit = audits[0] if audits else None
    if audit is not None and config.audit is not None and config.audit.name is None:
        audit.__name__ = "oracle" if config.audit.judge == ORACLE else "audit"
    return DiffusionTrainer(
        load_pipeline(config.model, config.model_revision, methods[0].args.mixed_precision),
        reward,
        train_prompts,
        methods,
        eval_prompts=eval_prompts,
        audit=audit,
        settings=config,
    )


def new_methods(config: DiffusionRunConfig) -> list[Method[DiffusionConfig]]:
    """The stages of a run: one for `method`, or those of `stages`.

    Raises:
        InputError: An unknown method, or settings that a method does not have.
    """
    if not config.stages:
        return [_new_method(config.method, config.trainer, config, "trainer")]
    stages = []
    known = {name for stage in config.stages for name in _fields(method_class(str(stage.get("method"))))}
    for name in config.trainer:
        if name not in known:
            raise InputError(f"trainer: unknown key {name!r}: no stage's method has it")
    for number, stage in enumerate(config.stages, start=1):
        own = {name: value for name, value in stage.items() if name != "method"}
        shared = {n: v for n, v in config.trainer.items() if n in _fields(method_class(str(stage.get("method"))))}
        stages.append(_new_method(str(stage.get("method")), shared | own, config, f"stage {number}"))
    return stages


def _new_method(
    name: str, settings: Mapping[str, object], config: DiffusionRunConfig, where: str
) -> Method[DiffusionConfig]:
    of_run = ("output_dir", "resume", "overwrite", "seed")
    for key in of_run:
        if key in settings:
            raise InputError(f"{where}: {key} is a setting of the run: write it beside 'trainer', not in it")
    chosen = method_class(name)
    values = {**settings, **{key: getattr(config, key) for key in of_run}}
    try:
        return chosen(load_config(chosen.config_class, overrides=values))
    except InputError as error:
        raise InputError(f"{where}: {str(error).removeprefix('overrides: ')}") from error


def _fields(method: type[Method[DiffusionConfig]]) -> set[str]:
    return {field.name for field in dataclasses.fields(method.config_class)}


def _check_questions(settings: RewardSettings, prompts: Sequence[str]) -> None:
    """Before a judge is loaded: every prompt has the questions that the reward, or a part of it, will ask."""
    if settings.kind == "tifa" and settings.questions is not None:
        QuestionStore(settings.questions, create=False).prepare(prompts)
    for part in settings.rewards:
        _check_questions(part, prompts)


def _completed(settings: RewardSettings, store: Path | None) -> RewardSettings:
    """The settings with the questions of the run's prompts where they name none, for parts too; each process has a
    device of its own, and "cuda" alone would put every process's judge on the first one."""
    unnamed = settings.kind == "tifa" and settings.questions is None and store is not None
    return dataclasses.replace(
        settings,
        questions=str(store) if unnamed else settings.questions,
        device=None if settings.device == PartialState().device.type else settings.device,
        rewards=[_completed(part, store) for part in settings.rewards],
    )


def check_pipeline(model: str, revision: str | None = None) -> None:
    """Whether there is such a pipeline, by its index alone: a name that is wrong is said before a judge loads.

    Raises:
        InputError: As :func:`load_pipeline`.
    """
    try:
        DiffusionPipeline.load_config(_checkpoint(model), revision=revision)
    except (OSError, ValueError) as error:
        raise _unloadable(model, error) from error


def load_pipeline(model: str, revision: str | None = None, mixed_precision: str = "no") -> DiffusionPipeline:
    """The diffusers pipeline, in the precision of the training.

    Raises:
        InputError: No pipeline can be loaded from there.
    """
    try:
        pipeline = DiffusionPipeline.from_pretrained(
            _checkpoint(model), revision=revision, dtype=DTYPES[mixed_precision]
        )
    except (OSError, ValueError) as error:
        raise _unloadable(model, error) from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _checkpoint(model: str) -> str:
    if model in PACKAGED and not PACKAGED[model].is_dir():
        raise InputError(f"the packaged weights of {model!r} are missing: no directory {PACKAGED[model]}")
    return str(PACKAGED.get(model, model))


def _unloadable(model: str, error: Exception) -> InputError:
    return InputError(f"model {model!r}: no pipeline can be loaded: {str(error).splitlines()[0]}")
