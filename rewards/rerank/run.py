"""Generate and rank in one run, from one config (`rewards best-of-n`, examples/best_of_n.py)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from rewards.build import RewardSettings
from rewards.errors import InputError
from rewards.jobs.engine import Engine
from rewards.rerank.generate import generate
from rewards.rerank.generate_settings import SHAPES, GenerateSettings
from rewards.rerank.outputs import OutputSettings, Summary, write_outputs
from rewards.rerank.settings import RerankSettings
from rewards.rerank.task import start_rerank
from rewards.runs.config import save_config


@dataclass
class BestOfNSettings:
    """What `configs/best_of_n_*.yaml` hold.

    Attributes:
        generate: the candidates.
        rerank: the reward that chooses, and the audit.
        outputs: what is written.
        out: folder of the run: `candidates/` and `ranking/`.
    """

    generate: GenerateSettings
    rerank: RerankSettings
    outputs: OutputSettings = field(default_factory=OutputSettings)
    out: str = "runs/best_of_n"


def run_best_of_n(settings: BestOfNSettings, engine: Engine | None = None) -> Summary:
    """Sample candidates, rank them, write the outputs; a run that was killed goes on.

    Args:
        settings: of the run; its resolved form is written to `config.yaml` in its folder.
        engine: what ranks; default: this machine. Candidates are always sampled by this process.

    Returns:
        The counts, with the mean score of the best and of the first candidate.

    Raises:
        InputError: settings that cannot work, or a folder of another run.
    """
    out = Path(settings.out)
    if (out / "config.yaml").exists() and not (out / "candidates").exists():
        raise InputError(
            f"{out} holds a config.yaml without candidates, which no run of best-of-n left; give another out"
        )
    with tqdm(unit="shard", desc="generate") as bar:
        candidates = generate(settings.generate, out / "candidates", on_shard=lambda: bar.update())
    rerank = settings.rerank
    if settings.generate.prompts == SHAPES and settings.generate.kind == "pictures":
        store = str(out / "candidates" / "questions.sqlite")
        rerank = replace(rerank, reward=_asking(rerank.reward, store))
        rerank = replace(rerank, audit=_asking(rerank.audit, store)) if rerank.audit is not None else rerank
    with start_rerank(candidates, out / "ranking", rerank) as job:
        save_config(settings, out / "config.yaml")  # once no part of the run was refused
        (engine or Engine()).finish(job, "rank")
        return write_outputs(job, settings.outputs)


def _asking(reward: RewardSettings, store: str) -> RewardSettings:
    """The questions of the shapes world for a reward that names none."""
    return replace(reward, questions=reward.questions or store) if reward.kind == "tifa" else reward
