"""A config from its file to its report."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rewards.build import RewardSettings
from rewards.errors import InputError
from rewards.preflight.drawing import estimate_drawing, forwards_a_picture, host_reads
from rewards.preflight.judging import estimate_judge, reads_of_a_forward
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
    known, methods = described(config.model), new_methods(config)
    for method in methods:
        count = forwards_a_picture(config.model, method)
        report.facts.append(f"{method.name}: {count} forwards of the network a picture")
        with _told(report, method.name):
            phases = estimate_drawing(known, method)
            report.parts["policy"] = max(report.parts.get("policy", []), phases, key=most)
            sizes = {phase.name: phase.bytes for phase in phases}
            idle = sizes["weights"] + sizes["optimiser"] + sizes["kept pictures"]
            report.beside = max(report.beside, sizes["sampling"] if method.args.async_reward_computation else idle)
        with _told(report, f"{method.name} on a GPU"):
            report.facts += _waits(method.name, host_reads(known, method))
    _judges(report, config.reward, [config.audit] if config.audit else [])
    if config.prompts != SHAPES and not Path(config.prompts).is_file():
        report.missing.append(f"prompts: {config.prompts} is not there")
    args = methods[0].args
    for tracker in [args.log_with] if isinstance(args.log_with, str) else args.log_with or []:
        _package(report, tracker)
    if args.mixed_precision == "no":
        report.smaller.append("trainer.mixed_precision=bf16")
    if not args.use_lora:
        report.smaller.append("trainer.use_lora=true")
    report.smaller.append("a smaller trainer.resolution")
    return report


def check_writing(config: LanguageRunConfig, title: str) -> Report:
    """The report of a run of models that write.

    Raises:
        InputError: A model that is not known.
    """
    report = Report(title)
    known = described(config.policy.path)
    with _told(report, "policy"):
        phases = estimate_writing(config, report.facts)
        report.parts["policy"] = phases
        report.beside = sum(phase.bytes for phase in phases[:3])
    with _told(report, "policy on a GPU"):
        report.facts += _waits("policy", {"a forward": reads_of_a_forward(known)})
    _judges(report, config.reward, config.evaluation.audits)
    if config.trainer.get("use_vllm"):
        _package(report, "vllm")
    if isinstance(tracker := config.trainer.get("report_to"), str):
        _package(report, tracker)
    if known["model_type"] == "smolvlm":
        _package(report, "num2words")
    if not config.policy.lora_rank:
        report.smaller.append("policy.lora_rank=16")
    return report


def _judges(report: Report, reward: RewardSettings, audits: list[RewardSettings]) -> None:
    named = [("reward", reward)] + [(f"audit {at}" if at else "audit", audit) for at, audit in enumerate(audits)]
    for part, settings in named:
        if settings.kind == "function":
            continue
        with _told(report, part):
            phases = estimate_judge(settings, report.facts, report.missing)
            if phases:
                report.parts[part] = phases
                report.smaller.append(f"the {part}'s judge in a server ({part.split()[0]}.judge=http://HOST:PORT)")


@contextmanager
def _told(report: Report, part: str) -> Iterator[None]:
    """What cannot be checked is said in a line, and the rest is checked all the same."""
    try:
        yield
    except InputError as error:
        report.missing.append(f"{part}: {error}")
    except Exception as error:  # other libraries' code on tensors without values may raise anything
        report.failed.append(f"{part}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")


def _waits(part: str, reads: dict[str, Counter[str]]) -> list[str]:
    told = [f"{phase} {found.total()}" + (f" ({', '.join(found)})" if found else "") for phase, found in reads.items()]
    return [f"{part}: times that the host waits for a GPU: {'; '.join(told)}"]


def _package(report: Report, name: str) -> None:
    if name not in ("all", "none") and importlib.util.find_spec(name) is None:
        report.missing.append(f"package {name}")
