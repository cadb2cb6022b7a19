"""An output that is one file of JSON lines, made by a job in a folder beside it.

While it is worked on, everything lies in `<name>.job/`; the file appears at the end, whole, by one rename, and the
folder goes. Every line carries the job's id, so that a file says itself which settings made it; `<name>.settings.json`
beside it says what they were. A file that no such job wrote is never touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from rewards.errors import InputError
from rewards.jobs.engine import Engine
from rewards.jobs.job import Plan, plan_job, refuse_other_work, remove_job, start_job
from rewards.jobs.manifest import Identity
from rewards.jobs.report import Report
from rewards.jobs.task import Task
from rewards.runs.files import Row, numbered_lines, read_json, write_json, write_lines
from rewards.runs.identity import check_same

_ALONE = "written by this command and is left alone; choose another output"


def make_file(source: str | Path, output: str | Path, task: Task, engine: Engine | None = None) -> Report:
    """Do a task on all rows of a source and write its lines to a file; go on where an earlier run stopped.

    Args:
        source: the rows.
        output: the file to write.
        task: whose lines hold `overall`, `abstained`, `failed` and `line`.
        engine: what does the work; default: this machine.

    Returns:
        How the rows of the whole file came out. A file that is there already, made by the same job, is left as it is.

    Raises:
        InputError: the output is the source, is somebody else's, was made with other settings (named), or another
            process is working on it.
    """
    output = Path(os.path.realpath(output)) if Path(output).is_symlink() else Path(output)
    if not output.name:
        raise InputError("the output has no name; a file to write is needed")
    folder = output.with_name(output.name + ".job")
    found = _look_into(output, Path(source))
    refuse_other_work(folder, task.name)  # before a judge is loaded
    plan = plan_job(source, task)
    if found is not None:
        _refuse_other_settings(output, found.job, plan)
    rows = sum(1 for _ in plan.source.entries(None))
    if found is not None and found.rows > rows:
        raise InputError(f"{output} has more rows than {source}; choose another output, or remove it")
    if found is None or found.rows < rows:
        output.parent.mkdir(parents=True, exist_ok=True)
        with start_job(plan, folder) as job:
            (engine or Engine()).finish(job, output.name)
            _look_into(output, Path(source))  # whoever wrote there in the meantime keeps it
            write_json(_settings_of(output), {"job": plan.identity.id, **asdict(plan.identity)})
            write_lines(output, ({**line, "job": plan.identity.id} for line in job.lines()))
            remove_job(folder)
    return read_report(output)


def read_report(output: Path) -> Report:
    """Count the rows of a finished file."""
    report = Report()
    for _, line in numbered_lines(output):
        report.add(line["overall"], line["abstained"], line["failed"])
    return report


def reported_lines(output: Path) -> Iterator[tuple[int, str]]:
    """(line of the source, reason) of the rows that have no score."""
    for _, line in numbered_lines(output):
        if line["overall"] is None:
            yield line["line"], line["abstained"]


def _settings_of(output: Path) -> Path:
    return output.with_name(output.name + ".settings.json")


class _Found(NamedTuple):
    """What lies where an output is to be written: the job that wrote it, and its rows that are there."""

    job: str
    rows: int


def _look_into(output: Path, source: Path) -> _Found | None:
    """What an output holds; None where there is none, or an empty one.

    Every line is looked at: a note that somebody added, or rows of another job, are not to be lost, nor counted.
    """
    settings = _settings_of(output)
    if settings.exists() and not _is_settings(settings):
        raise InputError(f"{settings} was not {_ALONE}")
    if not output.exists():
        return None
    if source.exists() and output.samefile(source):
        raise InputError(f"{output} is the input; choose another output")
    if output.is_dir():
        raise InputError(f"{output} is a folder; a file for the output is needed")
    if not output.is_file():
        raise InputError(f"{output} is no regular file; a file for the output is needed")
    job: str | None = None
    rows = 0
    with output.open("rb") as file:
        for number, content in enumerate(file, start=1):
            line = _own_line(content, rows)
            if line is None and job is not None and _cut_off(content, rows):
                break
            if line is None or job not in (None, line["job"]):
                raise InputError(f"{output}, line {number}, was not {_ALONE}")
            job, rows = line["job"], rows + 1
    return None if job is None else _Found(job, rows)


def _own_line(content: bytes, row: int) -> Row | None:
    """A line as :func:`make_file` writes it for a row, or None."""
    try:
        line = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("row")) is not int or line["row"] != row:
        return None
    overall, reason = line.get("overall"), line.get("abstained")
    known = isinstance(line.get("job"), str) and type(line.get("failed")) is bool and type(line.get("line")) is int
    judged = reason is None if type(overall) in (int, float) else overall is None and isinstance(reason, str)
    return line if known and judged else None


def _cut_off(content: bytes, row: int) -> bool:
    """Whether a last line is the beginning of a row's."""
    begins = f'{{"row": {row}, '.encode()
    return not content.endswith(b"\n") and (content.startswith(begins) or begins.startswith(content))


def _is_settings(path: Path) -> bool:
    try:
        known = read_json(path)
    except InputError:
        return False
    return isinstance(known, dict) and known.keys() == {"job", *(field.name for field in fields(Identity))}


def _refuse_other_settings(output: Path, made_by: str, plan: Plan) -> None:
    if made_by == plan.identity.id:
        return
    if _settings_of(output).exists():
        known = read_json(_settings_of(output))
        if isinstance(known, dict) and known.pop("job", None) == made_by:
            check_same(known, asdict(plan.identity), f"what {output} was made with")
    raise InputError(
        f"{output} was made with other settings (job {made_by}, these are job {plan.identity.id}); choose another "
        "output, or remove it"
    )
