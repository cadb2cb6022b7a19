"""The TIFA benchmark as a job: pictures in, the official result out."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from rewards.build import RewardSettings, build_reward, judge_devices, with_absolute_paths
from rewards.errors import InputError
from rewards.jobs.engine import Engine
from rewards.jobs.guarded import Guarded
from rewards.jobs.index import IndexedItem
from rewards.jobs.job import Job, claim, plan_job, remove_job, start_job
from rewards.jobs.manifest import INPUT, read_manifest
from rewards.jobs.rewards import described
from rewards.jobs.sources import Source
from rewards.jobs.task import Line, Task, Worker
from rewards.reward import Reward
from rewards.runs.files import Json, Row, read_json, read_lines, write_lines
from rewards.tifa.benchmark import Answer, Judged, Picture, Plan, questions_by_id
from rewards.tifa.results import official_result, summary, write_result
from rewards.tifa.store.store import QuestionStore


@dataclass
class TifaBenchSettings:
    """What a benchmark's answers depend on; YAML mirrors it.

    Attributes:
        reward: of kind tifa; its questions are those of the benchmark.
        shard_size: pictures committed together; a killed run repeats one shard at most.
        batch_size: pictures in one call of the judge.
        max_abstained: share of abstentions in a shard of 200 pictures or more above which the job stops.
    """

    reward: RewardSettings
    shard_size: int = 64
    batch_size: int = 8
    max_abstained: float = 1.0

    def __post_init__(self) -> None:
        if self.reward.kind != "tifa":
            raise InputError(f"the benchmark asks TIFA's questions; reward kind {self.reward.kind!r} does not")
        for name in ("shard_size", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 is needed")


class TifaBenchTask(Task):
    """Ask every question of a picture's prompt.

    Args:
        settings: of the job.
        folder: what the names of pictures are relative to.
    """

    name = "tifa-bench"

    def __init__(self, settings: TifaBenchSettings, folder: Path) -> None:
        self.chosen = replace(settings, reward=with_absolute_paths(settings.reward))
        self.folder = folder.absolute()
        self.shard_size = settings.shard_size

    def settings(self, source: Source) -> Mapping[str, Json]:
        """See :meth:`Task.settings`. Where the questions lie does not matter: the reward's identity holds them."""
        reward = {**described(self.chosen.reward), "questions": None}
        return {"reward": reward, "shard_size": self.shard_size, "batch_size": self.chosen.batch_size}

    def start(self, device: str | None = None) -> Worker:
        """See :meth:`Task.start`."""
        return TifaBenchWorker(self, build_reward(self.chosen.reward, device))

    def devices(self) -> list[str | None]:
        """See :meth:`Task.devices`."""
        return judge_devices(self.chosen.reward)


class TifaBenchWorker(Worker):
    """Asks a judge about pictures.

    Args:
        task: the settings.
        reward: TIFA.
    """

    def __init__(self, task: TifaBenchTask, reward: Reward) -> None:
        self.task = task
        self.reward = Guarded(reward, task.chosen.max_abstained)

    def identity(self) -> Mapping[str, Json]:
        """See :meth:`Worker.identity`."""
        return {"reward": self.reward.identity()}

    def lines(
        self, source: Source, items: Sequence[IndexedItem], lost: Sequence[tuple[int, str]], shard: str
    ) -> Iterator[Line]:
        """See :meth:`Worker.lines`: a line a picture, with the hash of its content and every answer."""
        rows = source.read([indexed.rows[0][0] for indexed in items])
        lines: list[dict[str, Json]] = []
        for start in range(0, len(rows), self.task.chosen.batch_size):
            batch = rows[start : start + self.task.chosen.batch_size]
            paths = [self.task.folder / str(row["name"]) for row in batch]
            hashes = [content_hash(path) for path in paths]  # before they are judged: a later change is found
            scores = self.reward.score(paths, [row["id"] for row in batch])  # type: ignore[misc]
            for at, row in enumerate(batch):
                known = {"id": row["id"], "name": row["name"], "content": hashes[at]}
                answers = scores.details[at].get("answers", [])
                lines.append({**known, "answers": answers, "reason": scores.reasons[at]})  # type: ignore[dict-item]
        self.reward.check(shard, [str(line["reason"]) if line["reason"] else None for line in lines])
        return iter(lines)


def content_hash(path: Path) -> str | None:
    """24 hexadecimal digits of a file's content; None where it cannot be read."""
    try:
        return blake2b(path.read_bytes(), digest_size=12).hexdigest()
    except OSError:
        return None


def run_benchmark(
    task: TifaBenchTask, plan: Plan, output: Path, engine: Engine | None = None, keep_questions: bool = False
) -> Row:
    """Ask about every picture of a plan and write the result; go on where an earlier run stopped.

    Args:
        task: what is asked; its settings name the question store.
        plan: from :func:`rewards.tifa.benchmark.plan_benchmark`.
        output: the result file; what is under way lies in `<name>.job/` beside it.
        engine: what does the work; default: this machine.
        keep_questions: copy the question store into that folder, where every process finds it.

    Returns:
        The official result, with `summary`.

    Raises:
        InputError: an earlier run was begun with other pictures, questions or settings, or another process works on it.
    """
    folder = output.with_name(output.name + ".job")
    lock = claim(folder, task.name)
    try:
        begun = read_manifest(folder, task.name) is not None
        if keep_questions:
            task = _keep_questions(task, folder, begun)
        job = start_job(plan_job(_write_pictures(folder, plan.pictures, begun), task), folder, lock)
    except BaseException:
        lock.release()
        if read_manifest(folder, task.name) is None:
            remove_job(folder)
        raise
    with job:
        forget_changed(job, task.folder)
        (engine or Engine()).finish(job, output.name)
        result = _result(job, str(task.chosen.reward.questions))
        write_result(output, result)
        remove_job(folder)
    return result


def _keep_questions(task: TifaBenchTask, folder: Path, begun: bool) -> TifaBenchTask:
    """The task with a copy of its questions in the job's folder."""
    given, kept = str(task.chosen.reward.questions), folder / INPUT / "questions.sqlite"
    if not begun:
        kept.parent.mkdir(exist_ok=True)
        shutil.copyfile(given, kept)
    elif QuestionStore(kept, create=False).fingerprint() != QuestionStore(given, create=False).fingerprint():
        raise InputError(f"the benchmark in {folder} was begun with other questions; remove it to begin anew")
    moved = copy.copy(task)
    moved.chosen = replace(task.chosen, reward=replace(task.chosen.reward, questions=str(kept.absolute())))
    return moved


def forget_changed(job: Job, folder: Path) -> None:
    """Ask anew about pictures that were drawn anew: drop the shards that hold one."""
    for shard in job.shards():
        path = job.path_of(shard)
        if path.exists() and any(
            content_hash(folder / str(line["name"])) != line["content"] for line in read_lines(path)
        ):
            path.unlink()


def refuse_foreign(output: Path, inputs: Sequence[Path]) -> None:
    """Refuse to write a result over anything but a result.

    Raises:
        InputError: the output is an input, a folder, or a file that this command did not write.
    """
    if not output.exists():
        return
    if any(path.exists() and output.samefile(path) for path in inputs):
        raise InputError(f"{output} is an input; choose another output")
    if output.is_file():
        if output.stat().st_size == 0:
            return
        try:
            content = read_json(output)
        except InputError:
            content = None
        if isinstance(content, dict) and {"tifa_average", "question_details", "summary"} <= content.keys():
            return
    raise InputError(f"{output} was not written by this command and is left alone; choose another output")


def _write_pictures(folder: Path, pictures: Sequence[Picture], begun: bool) -> Path:
    """The rows of the job, in its folder."""
    path = folder / INPUT / "pictures.jsonl"
    rows = [{"id": picture.id, "name": picture.name} for picture in pictures]
    if not begun:
        path.parent.mkdir(exist_ok=True)
        write_lines(path, rows)
    elif read_lines(path) != rows:
        raise InputError(f"the benchmark in {folder} was begun with other pictures; remove it to begin anew")
    return path


def _result(job: Job, questions: str) -> dict[str, Json]:
    judged = [_judged(line) for line in job.lines()]
    store = QuestionStore(questions, create=False)
    asked = questions_by_id(store, judged)
    numbers = summary(judged, asked)
    rewards = job.identity.rewards
    assert isinstance(rewards, Mapping)
    numbers |= {"reward": rewards["reward"], "questions_fingerprint": store.fingerprint()}
    store.close()
    return official_result(judged, asked) | {"summary": numbers}


def _judged(line: Row) -> Judged:
    answers = [
        Answer(
            answer["question"],
            answer["free_form"],
            answer["choice"],
            answer["how"],
            answer["right"],
            None if answer["right"] is None else answer["score"],
        )
        for answer in line["answers"]
    ]
    return Judged(line["id"], line["name"], answers, line["reason"])
