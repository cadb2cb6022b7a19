"""Scoring what is in a file: rows in, one record with every part a row out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rewards.build import RewardSettings, build_reward, judge_devices, with_absolute_paths
from rewards.errors import InputError
from rewards.jobs import cells
from rewards.jobs.guarded import Guarded
from rewards.jobs.index import IndexedItem
from rewards.jobs.rewards import checklist_columns, described, judged_kind, refuse_memory
from rewards.jobs.sources import Row, Source
from rewards.jobs.task import Line, Task, Worker
from rewards.reward import Reward
from rewards.runs.files import Json

if TYPE_CHECKING:
    from rewards.tifa.store.store import QuestionStore

logger = logging.getLogger(__name__)

_OWN_COLUMNS = ("images", "texts", "inputs", "boxes", "prompts", "completions")
_PROMPTS_AT_ONCE = 100_000


@dataclass
class ScoreSettings:
    """What the scores of a file depend on; YAML mirrors it.

    Attributes:
        reward: what scores.
        image_column: of the picture or pictures: a path relative to the file, bytes, or a `datasets` picture.
        text_column: of the text that is rated, or of the prompt (or its id) where pictures are judged; default: "text"
            or "prompt".
        input_column: of the question, for the tasks that have one.
        box_column: of [left, top, right, bottom] in pixels, or its JSON, for the task `referring`.
        shard_size: rows committed together; a killed run repeats one shard at most.
        batch_size: rows handed to the reward at a time.
        max_abstained: share of abstentions in a shard of 200 rows or more above which the job stops.
    """

    reward: RewardSettings
    image_column: str = "image"
    text_column: str | None = None
    input_column: str = "input"
    box_column: str = "box"
    shard_size: int = 256
    batch_size: int = 16
    max_abstained: float = 1.0

    def __post_init__(self) -> None:
        for name in ("shard_size", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if not 0 <= self.max_abstained <= 1:
            raise InputError(f"max_abstained is {self.max_abstained}; a share between 0 and 1 is needed")
        refuse_memory(self.reward)

    @property
    def pictures(self) -> bool:
        """Whether pictures of a prompt are judged, and not texts about a picture."""
        return judged_kind(self.reward) == "pictures"

    @property
    def text(self) -> str:
        """The column of the text or prompt."""
        return self.text_column or ("prompt" if self.pictures else "text")


class ScoreTask(Task):
    """Score every row of a source.

    Args:
        settings: of the job; relative paths are those of this process, whichever does the work.
    """

    name = "score"

    def __init__(self, settings: ScoreSettings) -> None:
        self.chosen = replace(settings, reward=with_absolute_paths(settings.reward))
        self.shard_size = settings.shard_size

    def settings(self, source: Source) -> Mapping[str, Json]:
        """See :meth:`Task.settings`."""
        names = ("image_column", "text", "input_column", "box_column", "shard_size", "batch_size")
        return {
            **{name: getattr(self.chosen, name) for name in names},
            "reward": described(self.chosen.reward),
        }

    def check(self, source: Source) -> None:
        """See :meth:`Task.check`: the columns are there, and prompts have questions."""
        source.check_columns([self.chosen.image_column], [self.chosen.text], *checklist_columns(self.chosen.reward))
        if self.chosen.reward.kind == "tifa" and self.chosen.reward.questions is not None:
            from rewards.tifa.store.store import QuestionStore

            _check_questions(source, self.chosen.text, QuestionStore(self.chosen.reward.questions, create=False))

    def start(self, device: str | None = None) -> Worker:
        """See :meth:`Task.start`."""
        return ScoreWorker(self.chosen, build_reward(self.chosen.reward, device))

    def devices(self) -> list[str | None]:
        """See :meth:`Task.devices`."""
        return judge_devices(self.chosen.reward)


def _check_questions(source: Source, column: str, store: QuestionStore) -> None:
    """Say which rows will abstain because their prompt has no questions; where no prompt has any, it is the wrong store
    (or column): refuse."""
    seen: set[str | int] = set()
    found, missing, first = False, 0, ""
    for _, line, prompt, problem in source.entries(column):
        if problem is not None or not cells.is_prompt(prompt) or prompt == "" or prompt in seen:
            continue
        seen = {prompt} if len(seen) >= _PROMPTS_AT_ONCE else seen | {prompt}
        try:
            store.get(prompt)
            found = True
        except InputError as error:
            missing += 1
            first = first or f"line {line}: {error}"
    store.close()
    if missing and not found:
        raise InputError(f"{source.path}, {first}")
    if missing:
        logger.warning("no questions for %d of the prompts, whose rows abstain; the first: %s", missing, first)


@dataclass(frozen=True)
class _Sample:
    """A row that can be given to the reward."""

    image: object
    text: str | int
    columns: Mapping[str, object]


class ScoreWorker(Worker):
    """Scores rows by a reward.

    Args:
        settings: of the job.
        reward: what scores.
    """

    def __init__(self, settings: ScoreSettings, reward: Reward) -> None:
        self.settings = settings
        self.reward = Guarded(reward, settings.max_abstained)

    def identity(self) -> Mapping[str, Json]:
        """See :meth:`Worker.identity`."""
        return {"reward": self.reward.identity()}

    def lines(
        self, source: Source, items: Sequence[IndexedItem], lost: Sequence[tuple[int, str]], shard: str
    ) -> Iterator[Line]:
        """See :meth:`Worker.lines`: a record a row, in order."""
        heads: list[dict[str, Json]] = []
        samples: dict[int, _Sample] = {}
        for at, indexed in enumerate(items):
            position, line = indexed.rows[0]
            head: dict[str, Json] = {"row": indexed.seq, "line": line}
            heads.append(head)
            try:
                row = source.read([position])[0]
                head["id"] = cells.name(row.get("id"))
                samples[at] = self._sample(row, source.path.parent)
            except ValueError as error:  # InputError is one
                head |= {"id": head.get("id"), "overall": None, "parts": {}, "abstained": str(error), "failed": True}
        places = list(samples)
        verdicts: list[str | None] = []
        for start in range(0, len(places), self.settings.batch_size):
            batch = places[start : start + self.settings.batch_size]
            for at, record in zip(batch, self._scored([samples[at] for at in batch]), strict=True):
                heads[at] |= {**record, "failed": False}
                verdicts.append(str(record["abstained"]) if record["overall"] is None else None)
        self.reward.check(shard, verdicts)
        return iter(heads)

    def _sample(self, row: Row, folder: Path) -> _Sample:
        """A row as the reward takes it; InputError where it cannot be given to it."""
        settings = self.settings
        image = cells.picture(row, settings.image_column, folder)
        read = cells.prompt if settings.pictures else cells.text
        used = (settings.image_column, settings.text, settings.input_column, settings.box_column, *_OWN_COLUMNS)
        columns: dict[str, object] = {name: value for name, value in row.items() if name not in used}
        columns["inputs"] = row.get(settings.input_column)
        columns["boxes"] = cells.box(row.get(settings.box_column))
        columns["prompts"] = row.get("prompt")
        return _Sample(image, read(row, settings.text), columns)

    def _scored(self, samples: Sequence[_Sample]) -> list[dict[str, Json]]:
        names = dict.fromkeys(name for sample in samples for name in sample.columns)
        columns = {name: [sample.columns.get(name) for sample in samples] for name in names}
        images, texts = [sample.image for sample in samples], [sample.text for sample in samples]
        given = {name: values for name, values in columns.items() if any(value is not None for value in values)}
        return self.reward.score(images, texts, **given).records()  # type: ignore[arg-type]
