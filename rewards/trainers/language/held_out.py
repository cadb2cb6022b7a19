"""The held-out prompts of a language trainer: written with fixed noise, judged by the reward and by every audit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelerate.utils import gather_object
from datasets import Dataset
from transformers import ProcessorMixin
from trl.data_utils import prepare_multimodal_messages

from rewards.calling import score_for_trl
from rewards.generation.texts import Written, write_batches
from rewards.images import to_pil
from rewards.reward import Reward
from rewards.runs.evaluations import Evaluation, HeldOutSample, Judgment
from rewards.runs.intervals import clustered_error
from rewards.scores import Scores
from rewards.trainers.language.data import clusters, row_pictures
from rewards.trl_inputs import prompt_text


@dataclass(frozen=True)
class Judged:
    """What was written for the held-out prompts and how it was judged; the same on every process.

    Attributes:
        texts: one a prompt, in the order of the prompts.
        scores: of the training reward.
        audits: of the audits, by name.
        metrics: flat metrics: `eval/rewards/...` for the reward, `eval/audit/...` for audits.
    """

    texts: Sequence[str]
    scores: Scores
    audits: Mapping[str, Scores]
    metrics: Mapping[str, float]


class Share(NamedTuple):
    """What one process has written and judged: rows, texts, and the scores of the reward and of every audit."""

    indices: Sequence[int]
    texts: Sequence[str]
    scores: Sequence[Scores]


class HeldOut:
    """What is evaluated on, and by whom.

    Args:
        rows: dataset rows with `prompt` and `image` or `images`; further columns go to the rewards.
        reward: the training reward.
        audits: rewards that never train.
        max_new_tokens: longest text.
        temperature: of the samples.
        batch_size: texts generated at a time, part of the noise.
        seed: of the noise.
        cluster: column that says what rows share (see :func:`rewards.trainers.language.data.clusters`).
    """

    def __init__(
        self,
        rows: Dataset,
        reward: Reward,
        audits: Sequence[Reward] = (),
        *,
        max_new_tokens: int = 64,
        temperature: float = 1.0,
        batch_size: int = 32,
        seed: int = 0,
        cluster: str | None = None,
    ) -> None:
        self.rows = rows
        self.reward = reward.for_evaluation()
        self.audits = [audit.for_evaluation() for audit in audits]
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.batch_size = batch_size
        self.seed = seed
        self.clusters = clusters(rows, cluster)

    def evaluate(self, model: Any, processor: ProcessorMixin, process: int = 0, processes: int = 1) -> Judged:
        """Write and judge a text for every row; each process takes its share of the batches.

        Args:
            model: the policy, unwrapped.
            processor: its processor.
            process, processes: number of this process, and how many there are.
        """
        mine = [self.share(model, processor, process, processes)]
        return self.together(gather_object(mine) if processes > 1 else mine)

    def share(self, model: Any, processor: ProcessorMixin, process: int, processes: int) -> Share:
        """What one process writes and judges: every so-manieth batch."""
        starts = range(process * self.batch_size, len(self.rows), processes * self.batch_size)
        batches = [list(range(start, min(start + self.batch_size, len(self.rows)))) for start in starts]
        written = [text for batch in batches for text in self._write(model, processor, batch)]
        indices = [index for batch in batches for index in batch]
        judged = [self._score(reward, indices, written) for reward in (self.reward, *self.audits)]
        return Share(indices, [text.text for text in written], judged)

    def _score(self, reward: Reward, indices: Sequence[int], written: Sequence[Written]) -> Scores:
        """Judge batch by batch: a judge that fails once costs the samples that it was asked about and no others."""
        size = self.batch_size
        starts = range(0, len(indices), size)
        batches = [self._judged(reward, indices[at : at + size], written[at : at + size]) for at in starts]
        return Scores.concatenate(batches) if batches else Scores.nothing([])

    def together(self, shares: Sequence[Share]) -> Judged:
        """The shares of all processes as one evaluation."""
        order = [index for share in shares for index in share.indices]
        place = sorted(range(len(order)), key=order.__getitem__)
        texts = [text for share in shares for text in share.texts]
        reward, *audits = (
            Scores.concatenate([share.scores[number] for share in shares]).take(place)
            for number in range(1 + len(self.audits))
        )
        by_name = {audit.__name__: scores for audit, scores in zip(self.audits, audits, strict=True)}
        return Judged([texts[row] for row in place], reward, by_name, self._metrics(reward, audits))

    def as_evaluation(self, step: int, judged: Judged) -> Evaluation:
        """The evaluation as it is kept in `evaluations.jsonl`."""
        audits = {name: scores.records() for name, scores in judged.audits.items()}
        samples = [
            HeldOutSample(
                index=index,
                prompt=prompt_text(self.rows[index]["prompt"]) or "",
                judgment=Judgment.from_record(record),
                audits={name: Judgment.from_record(records[index]) for name, records in audits.items()},
                cluster=self.clusters[index],
                text=judged.texts[index],
            )
            for index, record in enumerate(judged.scores.records())
        ]
        return Evaluation(step, self.reward.__name__, samples)

    def _write(self, model: Any, processor: ProcessorMixin, indices: Sequence[int]) -> list[Written]:
        """Texts of one batch, whose noise depends on the seed and the number of the batch."""
        return write_batches(
            model,
            processor,
            [conversation(self.rows[index]) for index in indices],
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            batch_size=self.batch_size,
            seed=self.seed,
            first_batch=indices[0] // self.batch_size,
        )

    def _judged(self, reward: Reward, indices: Sequence[int], written: Sequence[Written]) -> Scores:
        rows = [self.rows[index] for index in indices]
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        columns["completion_ids"] = [text.ids for text in written]
        completions = [[{"role": "assistant", "content": text.text}] for text in written]
        return score_for_trl(reward, [row["prompt"] for row in rows], completions, columns)

    def _metrics(self, scores: Scores, audits: Sequence[Scores]) -> dict[str, float]:
        metrics = self._curves("eval/rewards", self.reward, scores)
        for number, (audit, judged) in enumerate(zip(self.audits, audits, strict=True)):
            metrics |= self._curves("eval/audit", audit, judged)
            reward_mean, audit_mean = common_means(scores, judged)
            metrics[f"eval/audit/{audit.__name__}/gap"] = reward_mean - audit_mean
            if number == 0:
                metrics["eval/audit/gap"] = reward_mean - audit_mean
        return metrics

    def _curves(self, branch: str, reward: Reward, scores: Scores) -> dict[str, float]:
        """What the reward says of all rows, and the standard error of every part, clustered."""
        metrics = {f"{branch}/{key.removeprefix('rewards/')}": v for key, v in reward.metrics(scores).items()}
        columns = {"overall": scores.overall, **dict(zip(scores.part_names, scores.parts.T, strict=True))}
        for part, values in columns.items():
            error = clustered_error(values.double().numpy(), self.clusters)
            # The parts of a combined reward have their curves under their own names.
            names = (f"{reward.__name__}/{part}", part, f"{part}/overall")
            place = next((name for name in names if f"{branch}/{name}/mean" in metrics), None)
            if place is not None and math.isfinite(error):
                metrics[f"{branch}/{place}/standard_error"] = error
        return metrics


def conversation(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row's prompt with its pictures in it, as TRL's trainers build it."""
    messages: list[dict[str, Any]] = prepare_multimodal_messages(
        row["prompt"], images=[to_pil(picture) for picture in row_pictures(row)]
    )
    return messages


def common_means(reward: Scores, audit: Scores) -> tuple[float, float]:
    """Means of a reward and of an audit over the texts that both judged; NaN if there is none.

    Example:
        >>> import torch
        >>> one, other = (Scores(torch.tensor(values), [None] * 2) for values in ([4.0, 2.0], [3.0, math.nan]))
        >>> common_means(one, other)
        (4.0, 3.0)
    """
    both = ~(reward.abstained | audit.abstained)
    return float(reward.overall[both].double().mean()), float(audit.overall[both].double().mean())
