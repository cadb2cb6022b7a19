"""A whole DDPO run with TIFA from one config: what ``examples/ddpo_sd.py`` and the demo call."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from accelerate import PartialState

from rewards.errors import InputError
from rewards.judges.loading import load_judge
from rewards.runs.config import check_number, save_config
from rewards.runs.files import write_whole
from rewards.runs.metrics import read_metrics
from rewards.runs.paired_gain import paired_gain
from rewards.shapes.oracle import Oracle
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.tifa import SENTENCE_MODEL
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import read_questions
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.ddpo import DDPOTrainer
from rewards.trainers.diffusion.evaluation import Evaluation, summary
from rewards.trainers.diffusion.policy import DTYPES
from rewards.trainers.diffusion.scoring import reward_name

SHAPES = "shapes"
ORACLE = "shapes-oracle"
SHAPES_PIPELINE = Path(__file__).resolve().parents[2] / "shapes" / "weights" / "stable_diffusion"


@dataclass
class TIFAConfig:
    """A TIFA reward.

    Attributes:
        judge: Name, path or URL for :func:`rewards.load_judge`, or "shapes-oracle" for the exact reader of the shapes
            world.
        answer: "free_form" or "choices" (see :class:`rewards.TIFA`); None takes the default.
        soft: The probability of the right choice instead of 0 or 1. Evaluations always count right answers.
        sentence_model: SBERT for free-form answers; null matches exactly.
        device, dtype, revision: Of the judge; by default it lives on its process's own device.
    """

    judge: str = "shapes-vqa"
    answer: Literal["free_form", "choices"] | None = None
    soft: bool = False
    sentence_model: str | None = SENTENCE_MODEL
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None


@dataclass
class DDPORunConfig:
    """What ``configs/ddpo_*.yaml`` hold.

    Attributes:
        model: A diffusers pipeline by path or Hub name, or "shapes" for the packaged one.
        model_revision: Of a Hub name.
        questions: "shapes", a JSON file in TIFA's format, or a question store (``.sqlite``).
        num_train_prompts: How many prompts to train on; null for all that are not held out (2,000 in the shapes world).
        num_eval_prompts: Prompts held out for evaluations.
        prompt_seed: Chooses the prompts.
        reward: Trains.
        audit: A second judge that never trains, or null.
        baseline_guidance_scales: Guidance scales at which the base model, and after training the trained one, are
            evaluated for comparison.
        trainer: The trainer's settings.
    """

    model: str = SHAPES
    model_revision: str | None = None
    questions: str = SHAPES
    num_train_prompts: int | None = None
    num_eval_prompts: int = 64
    prompt_seed: int = 0
    reward: TIFAConfig = field(default_factory=TIFAConfig)
    audit: TIFAConfig | None = None
    baseline_guidance_scales: list[float] = field(default_factory=list)
    trainer: DDPOConfig = field(default_factory=DDPOConfig)

    def __post_init__(self) -> None:
        check_number("num_eval_prompts", self.num_eval_prompts, at_least=0)
        check_number("num_train_prompts", self.num_train_prompts, at_least=1)
        for scale in self.baseline_guidance_scales:
            check_number("baseline_guidance_scales", scale, at_least=0)


def run_ddpo(config: DDPORunConfig) -> dict[str, Any]:
    """Train a pipeline with DDPO on TIFA and compare before and after on held-out prompts.

    Args:
        config: The run.

    Returns:
        The summary, which is also written to ``summary.json`` in the run folder, plain JSON values: ``reward`` and
        ``audit`` (None without one), each with ``before``, ``after`` (means over prompts), ``gain`` (mean, low, high of
        the paired 95% interval) and ``by_element_type``; ``baselines`` (a row a guidance scale); ``epochs``,
        ``seconds``, ``eval_prompts``, ``logdir``.

    Raises:
        InputError: A model, judge, file or setting that cannot be used.
        RewardsError: The run was stopped (see :meth:`DDPOTrainer.train`).
    """
    started = time.perf_counter()
    trainer = new_trainer(config)
    if trainer.accelerator.is_main_process:
        Path(config.trainer.logdir).mkdir(parents=True, exist_ok=True)
        save_config(config, Path(config.trainer.logdir) / "run.yaml")
    trainer.train()
    baselines = [_baseline(trainer, scale) for scale in config.baseline_guidance_scales if config.num_eval_prompts]
    result = summarize(config, trainer, baselines) | {"seconds": time.perf_counter() - started}
    if trainer.accelerator.is_main_process:
        write_whole(Path(config.trainer.logdir) / "summary.json", json.dumps(result, indent=1))
    return result


def new_trainer(config: DDPORunConfig) -> DDPOTrainer:
    """The trainer with its pipeline, prompts and rewards, not yet started.

    Raises:
        InputError: As :func:`run_ddpo`.
    """
    store, train_prompts, eval_prompts = _prompts(config)
    reward = new_tifa(config.reward, store)
    hard = reward
    if config.reward.soft:
        # The same judge, but the share of right answers: what TIFA means, and what the audit can be compared with.
        hard = TIFA(reward.judge, store, answer="choices")
    audit = None
    if config.audit is not None:
        audit = new_tifa(config.audit, store)
        audit.__name__ = "oracle" if config.audit.judge == ORACLE else "audit"
    return DDPOTrainer(
        load_pipeline(config),
        reward,
        train_prompts,
        config.trainer,
        eval_prompts=eval_prompts,
        eval_reward=hard,
        audit=audit,
    )


def new_tifa(config: TIFAConfig, store: QuestionStore) -> TIFA:
    """The reward that a config describes.

    Raises:
        InputError: An unknown judge, or settings that contradict each other.
    """
    if config.judge == ORACLE:
        return TIFA(Oracle(), store, matcher=AnswerMatcher(sentence_model=None))
    # Each process has a device of its own; "cuda" alone would put every process's judge on the first one.
    own = PartialState().device
    device = str(own) if config.device is None or config.device == own.type else config.device
    options = {"device": device, "dtype": config.dtype, "revision": config.revision}
    judge = load_judge(config.judge, **{name: value for name, value in options.items() if value is not None})
    matcher = AnswerMatcher(sentence_model=config.sentence_model)
    return TIFA(judge, store, answer=config.answer, soft=config.soft, matcher=matcher)


def load_pipeline(config: DDPORunConfig) -> Any:
    """The diffusers pipeline, in the precision of the training.

    Raises:
        InputError: No pipeline can be loaded from there.
    """
    from diffusers import DiffusionPipeline

    path = str(SHAPES_PIPELINE) if config.model == SHAPES else config.model
    if config.model == SHAPES and not SHAPES_PIPELINE.is_dir():
        raise InputError(f"the packaged weights of the shapes pipeline are missing: no directory {SHAPES_PIPELINE}")
    try:
        pipeline = DiffusionPipeline.from_pretrained(
            path, revision=config.model_revision, torch_dtype=DTYPES[config.trainer.mixed_precision]
        )
    except (OSError, ValueError) as error:
        raise InputError(f"model {config.model!r}: no pipeline can be loaded: {str(error).splitlines()[0]}") from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _prompts(config: DDPORunConfig) -> tuple[QuestionStore, list[str], list[str]]:
    """The question store, training prompts and held-out prompts."""
    wanted = config.num_train_prompts
    logdir = Path(config.trainer.logdir)
    if config.questions == SHAPES:
        train = generator_prompts("train", wanted or 2000, config.prompt_seed)
        held_out = generator_prompts("test", config.num_eval_prompts, config.prompt_seed)
        return question_store(_new_store(logdir), [*train, *held_out]), train, held_out
    path = Path(config.questions)
    if path.suffix in (".sqlite", ".db"):
        store = QuestionStore(path, create=False)
    else:
        questions = read_questions(path)
        store = QuestionStore(_new_store(logdir))
        store.add(questions, {"source": str(path)}, on_conflict="keep")
    prompts = sorted({prompt for _, prompt in store.prompts()})
    random.Random(config.prompt_seed).shuffle(prompts)
    held_out, train = prompts[: config.num_eval_prompts], prompts[config.num_eval_prompts :]
    if not train:
        raise InputError(
            f"questions {config.questions!r} cover {len(prompts)} prompts, of which num_eval_prompts="
            f"{config.num_eval_prompts} are held out: none is left to train on"
        )
    return store, train[:wanted], held_out


def _new_store(logdir: Path) -> Path:
    logdir.mkdir(parents=True, exist_ok=True)
    return logdir / "questions.sqlite"


def _baseline(trainer: DDPOTrainer, scale: float) -> dict[str, Any]:
    """The base and the trained model at another guidance scale, on the same prompts and noise."""
    row: dict[str, Any] = {"guidance_scale": scale}
    for name, base in (("base", True), ("trained", False)):
        evaluation: Evaluation = trainer.evaluate(guidance_scale=scale, base_model=base)
        row[name] = summary(evaluation.scores)["overall/mean"]
        if evaluation.audit is not None:
            row[f"{name}_audit"] = summary(evaluation.audit)["overall/mean"]
    return row


def summarize(config: DDPORunConfig, trainer: DDPOTrainer, baselines: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary of a finished run, from its files (so that a resumed run has the whole of it)."""
    result: dict[str, Any] = {
        "logdir": config.trainer.logdir,
        "epochs": trainer.step,
        "eval_prompts": config.num_eval_prompts,
        "reward": None,
        "audit": None,
        "baselines": baselines,
    }
    evaluations = trainer.evaluation_log.read()
    if len(evaluations) < 2:
        return result
    (_, before, audit_before), (_, after, audit_after) = evaluations[0], evaluations[-1]
    rows = [row for row in read_metrics(config.trainer.logdir) if any(key.startswith("eval/") for key in row)]
    ends = rows[0], rows[-1]
    name = reward_name(trainer.eval_reward)
    result["reward"] = _compare(before, after, ends, f"eval/rewards/{name}/")
    if trainer.audit is not None and audit_before is not None and audit_after is not None:
        result["audit"] = _compare(audit_before, audit_after, ends, f"eval/audit/{reward_name(trainer.audit)}/")
    return result


def _compare(
    before: np.ndarray, after: np.ndarray, ends: tuple[Mapping[str, Any], Mapping[str, Any]], prefix: str
) -> dict[str, Any]:
    names = sorted(
        key.removeprefix(prefix).removesuffix("/mean")
        for key in ends[0]
        if key.startswith(prefix) and key.endswith("/mean") and "/overall/" not in key
    )
    types = {
        name: {
            "before": ends[0][f"{prefix}{name}/mean"],
            "after": ends[1].get(f"{prefix}{name}/mean"),
            "count": ends[0].get(f"{prefix}{name}/count"),
        }
        for name in names
    }
    change = paired_gain(before, after)
    gain = [None if math.isnan(value) else value for value in (change.mean, change.low, change.high)]
    means = (summary(before)["overall/mean"], summary(after)["overall/mean"])
    return {"before": means[0], "after": means[1], "gain": gain, "by_element_type": types}


def summary_table(result: Mapping[str, Any]) -> str:
    """The summary as a plain-text table for a terminal: before, after, gain and 95% interval, by element type."""
    lines = [f"{result['epochs']} epochs, {result['eval_prompts']} held-out prompts, {result.get('seconds', 0):.0f} s"]
    lines.append(f"{'':24}{'before':>9}{'after':>9}{'gain':>9}  95% interval")
    for title in ("reward", "audit"):
        part = result[title]
        if part is None:
            continue
        mean, low, high = part["gain"]
        interval = "" if low is None else f"[{low:+.3f}, {high:+.3f}]"
        lines.append(f"{title:24}{_cell(part['before'])}{_cell(part['after'])}{_cell(mean, '+')}  {interval}")
        for name, row in part["by_element_type"].items():
            change = None if None in (row["before"], row["after"]) else row["after"] - row["before"]
            lines.append(f"  {name:22}{_cell(row['before'])}{_cell(row['after'])}{_cell(change, '+')}")
    for row in result["baselines"]:
        name = f"guidance {row['guidance_scale']:g}"
        lines.append(f"{name:24}{_cell(row['base'])}{_cell(row['trained'])}  (base and trained model)")
    return "\n".join(lines)


def _cell(value: float | None, sign: str = "") -> str:
    return f"{'-':>9}" if value is None or math.isnan(value) else f"{value:>{sign}9.3f}"
