"""``evaluations.jsonl``: every held-out sample of every evaluation with all of its scores, the same for all trainers.

One JSON object a line::

    {"step": 40, "reward": "TIFA",
     "index": 3, "sample": 0,                      # the prompt's number, and which of the samples drawn for it
     "id": "circle-3", "prompt": "a red circle",   # the id is the data's own, or the index
     "cluster": "a red circle",                    # what is of one prompt or scene is not independent
     "text": "...",                                # what a model that writes wrote
     "overall": 0.75, "parts": {"color": 1.0}, "abstained": null,
     "details": {"answers": [...]},                # what else the reward told of the sample: see Scores.details
     "audits": {"oracle": {"overall": 0.5, "parts": {"color": 1.0}, "abstained": null}}}

A score that does not exist is null, with the reason in ``abstained``; a part without a judgment is left out. Samples
are told apart by ``index`` and ``sample``, never by a text, which others may share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewards.errors import InputError
from rewards.runs.files import Json, Row, append_lines, finite_or_none, keep_lines, numbered_lines


@dataclass(frozen=True)
class Judgment:
    """One reward's view of one sample.

    Attributes:
        overall: The score; None where it abstained.
        parts: Criteria, element types or components that were judged, by name.
        abstained: Why there is no score, or None.
        details: What else it told of the sample, such as each question with its answer.
    """

    overall: float | None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    abstained: str | None = None
    details: Mapping[str, Json] = field(default_factory=dict)

    @staticmethod
    def from_record(record: Row) -> Judgment:
        """From an entry of :meth:`rewards.reward.Scores.records`, whose further entries are details.

        Example:
            >>> Judgment.from_record({"overall": 4.0, "parts": {"clarity": 3.5}, "abstained": None}).parts
            {'clarity': 3.5}
        """
        others = {key: value for key, value in record.items() if key not in ("overall", "parts", "abstained")}
        details = record.get("details", others)
        return Judgment(record["overall"], dict(record.get("parts") or {}), record.get("abstained"), details)

    def values(self) -> dict[str, float | None]:
        """`overall` and every part by name."""
        return {"overall": self.overall, **self.parts}

    def as_dict(self) -> dict[str, Json]:
        """Plain values for JSON."""
        return {
            "overall": self.overall,
            "parts": dict(self.parts),
            "abstained": self.abstained,
            "details": dict(self.details),
        }


@dataclass(frozen=True)
class HeldOutSample:
    """A held-out sample with its judgments.

    Attributes:
        index: Number of the prompt in the held-out set.
        prompt: Its text.
        judgment: By the training reward.
        audits: By the rewards that never train, by name.
        sample: Which of a prompt's samples.
        id: The data's own name of the prompt; the index where it has none.
        cluster: What is not independent of other samples: a scene; the prompt where nothing else is known.
        text: What was written, for models that write.
    """

    index: int
    prompt: str
    judgment: Judgment
    audits: Mapping[str, Judgment] = field(default_factory=dict)
    sample: int = 0
    id: str = ""
    cluster: str = ""
    text: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id or str(self.index))
        object.__setattr__(self, "cluster", self.cluster or self.prompt)


@dataclass(frozen=True)
class Evaluation:
    """All held-out samples at one step.

    Attributes:
        step: Of training.
        reward: Name of the training reward.
        samples: In order of index and sample.
    """

    step: int
    reward: str
    samples: Sequence[HeldOutSample]

    def judgments(self, audit: str | None = None) -> list[Judgment]:
        """By the training reward, or by an audit (where it judged nothing: abstentions), in the order of samples."""
        if audit is None:
            return [sample.judgment for sample in self.samples]
        return [sample.audits.get(audit, Judgment(None)) for sample in self.samples]

    def audits(self) -> list[str]:
        """Names of the audits, in the order of the file."""
        return list(dict.fromkeys(name for sample in self.samples for name in sample.audits))


class EvaluationLog:
    """Writes and reads ``evaluations.jsonl`` in a run folder.

    Args:
        folder: The run folder.

    Example:
        >>> import tempfile
        >>> log = EvaluationLog(tempfile.mkdtemp())
        >>> log.append(Evaluation(0, "TIFA", [HeldOutSample(0, "a red circle", Judgment(0.5))]))
        >>> log.read()[0].samples[0].judgment.overall
        0.5
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "evaluations.jsonl"

    def append(self, evaluation: Evaluation) -> None:
        """Write one evaluation; it replaces an earlier one of its step (a finished run that is resumed)."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.keep_until(evaluation.step - 1)
        append_lines(self.path, [_row(evaluation, sample) for sample in evaluation.samples])

    def keep_until(self, step: int) -> None:
        """Drop evaluations after `step`."""
        keep_lines(self.path, lambda row: int(row["step"]) <= step)

    def read(self) -> list[Evaluation]:
        """The evaluations, oldest first.

        Raises:
            InputError: A line that is no such row.
        """
        return list(self.iterate())

    def ends(self) -> list[Evaluation]:
        """The first evaluation and the last, or the only one, without the others in memory."""
        ends: list[Evaluation] = []
        for evaluation in self.iterate():
            ends = [*ends[:1], evaluation]
        return ends

    def iterate(self) -> Iterator[Evaluation]:
        """The evaluations one at a time, oldest first; errors as in :meth:`read`."""
        step, reward, samples = -1, "", list[HeldOutSample]()
        for number, row in numbered_lines(self.path, growing=True) if self.path.exists() else ():
            try:
                if samples and row["step"] != step:
                    yield Evaluation(step, reward, samples)
                    samples = []
                step, reward = row["step"], row["reward"]
                samples.append(_sample(row))
            except (KeyError, TypeError, AttributeError) as error:
                raise InputError(f"{self.path}, line {number}: not a row of an evaluation: {error!r}") from error
        if samples:
            yield Evaluation(step, reward, samples)


def _row(evaluation: Evaluation, sample: HeldOutSample) -> dict[str, Json]:
    row: dict[str, Json] = {
        "step": evaluation.step,
        "reward": evaluation.reward,
        "index": sample.index,
        "sample": sample.sample,
        "id": sample.id,
        "prompt": sample.prompt,
        "cluster": sample.cluster,
    }
    if sample.text is not None:
        row["text"] = sample.text
    row |= sample.judgment.as_dict()
    row["audits"] = {name: judgment.as_dict() for name, judgment in sample.audits.items()}
    return dict(finite_or_none(row))


def _sample(row: Row) -> HeldOutSample:
    return HeldOutSample(
        index=row["index"],
        prompt=row["prompt"],
        judgment=Judgment.from_record({"details": {}, **row}),
        audits={name: Judgment.from_record(audit) for name, audit in row["audits"].items()},
        sample=row["sample"],
        id=row["id"],
        cluster=row["cluster"],
        text=row.get("text"),
    )
