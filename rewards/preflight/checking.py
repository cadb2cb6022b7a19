"""A config from its file to its report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rewards.build import RewardSettings
from rewards.errors import InputError
from rewards.preflight.drawing import estimate_drawing, forwards_a_picture
from rewards.preflight.judging import estimate_judge
from rewards.preflight.models import described
from rewards.preflight.report import Report, most
from rewards.preflight.writing import estimate_writing
from rewards.trainers.diffusion.run import new_methods
from rewards.trainers.diffusion.settings import SHAPES, DiffusionRunConfig
from rewards.trainers.language.settings import LanguageRunConfig


def check_drawing(config: DiffusionRunConfig, title: str) -> Report:
    """The report of a run of models that draw; of several stages the one that needs most.

    Raises:
        InputError: Settings that contradict each other, or a model that is not known.
    """
    report = Report(title)
    methods = new_methods(config)
    estimates = [estimate_drawing(config.model, method) for method in methods]
    report.parts["policy"] = max(estimates, key=most)
    for method in methods:
        report.facts.append(
            f"{method.name}: {forwards_a_picture(config.model, method)} forwards of the network a picture"
        )
    _judges(report, config.reward, [config.audit] if config.audit else [])
    if config.prompts != SHAPES and not Path(config.prompts).is_file():
        report.missing.append(f"prompts: {config.prompts} is not there")
    args = methods[0].args
    for tracker in [args.log_with] if isinstance(args.log_with, str) else args.log_with or []:
        _package(report, tracker)
    if not args.gradient_checkpointing:
        report.advice.append("trainer.gradient_checkpointing=true")
    half = max(1, args.train_batch_size // 2)
    if half < args.train_batch_size:
        twice = 2 * args.train_gradient_accumulation_steps
        report.advice.append(f"trainer.train_batch_size={half} trainer.train_gradient_accumulation_steps={twice}")
    if args.mixed_precision == "no":
        report.advice.append("trainer.mixed_precision=bf16")
    report.advice += ["a judge in a server (reward.judge=http://HOST:PORT)", "trainer.sample_batch_size halved"]
    return report


def check_writing(config: LanguageRunConfig, title: str) -> Report:
    """The report of a run of models that write.

    Raises:
        InputError: A model that is not known.
    """
    report = Report(title)
    report.parts["policy"] = estimate_writing(config, report.facts)
    _judges(report, config.reward, config.evaluation.audits)
    if config.trainer.get("use_vllm"):
        _package(report, "vllm")
    if isinstance(tracker := config.trainer.get("report_to"), str):
        _package(report, tracker)
    if described(config.policy.path)["model_type"] == "smolvlm":
        _package(report, "num2words")
    if not config.trainer.get("gradient_checkpointing", True):
        report.advice.append("trainer.gradient_checkpointing=true")
    rows = int(config.trainer.get("per_device_train_batch_size", 8))
    if rows > 1:
        grown = 2 * int(config.trainer.get("gradient_accumulation_steps", 1))
        report.advice.append(
            f"trainer.per_device_train_batch_size={rows // 2} trainer.gradient_accumulation_steps={grown}"
        )
    report.advice += ["a judge in a server (reward.judge=http://HOST:PORT)", "trainer.max_completion_length smaller"]
    return report


def _judges(report: Report, reward: RewardSettings, audits: list[RewardSettings]) -> None:
    named = [("reward", reward)] + [(f"audit {at}" if at else "audit", audit) for at, audit in enumerate(audits)]
    for part, settings in named:
        if settings.kind == "function":
            continue
        try:
            phases = estimate_judge(settings, report.facts, report.missing)
        except InputError as error:
            report.missing.append(f"{part}: {error}")
            continue
        if phases:
            report.parts[part] = phases


def _package(report: Report, name: str) -> None:
    if name not in ("all", "none") and importlib.util.find_spec(name) is None:
        report.missing.append(f"package {name}")
