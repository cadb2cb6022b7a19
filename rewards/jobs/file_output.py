"""An output that is one file of JSON lines, made by a job in a folder beside it.

While it is worked on, everything lies in `<name>.job/`; the file appears at the end, whole, by one rename, and the
folder goes. Every line carries the job's id, so that a file says itself which settings made it; `<name>.settings.json`
beside it says what they were. A file that no such job wrote is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rewards.errors import InputError
from rewards.jobs.engine import Engine
from rewards.jobs.job import Plan, plan_job, refuse_other_work, remove_job, start_job
from rewards.jobs.report import Report
from rewards.jobs.task import Task
from rewards.runs.files import numbered_lines, read_json, write_json, write_lines
from rewards.runs.identity import check_same


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
    output = Path(output)
    folder = output.with_name(output.name + ".job")
    made_by = _id_of(output, Path(source))
    refuse_other_work(folder, task.name)  # before a judge is loaded
    plan = plan_job(source, task)
    if made_by is not None:
        _refuse_other_settings(output, made_by, plan)
    rows = sum(1 for _ in plan.source.entries(None))
    if made_by is None or sum(1 for _ in numbered_lines(output)) < rows:
        output.parent.mkdir(parents=True, exist_ok=True)
        with start_job(plan, folder) as job:
            (engine or Engine()).finish(job, output.name)
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


def _id_of(output: Path, source: Path) -> str | None:
    """The id of the job that wrote a file; None where there is none, or an empty one."""
    if not output.exists():
        return None
    if source.exists() and output.samefile(source):
        raise InputError(f"{output} is the input; choose another output")
    if output.is_dir():
        raise InputError(f"{output} is a folder; a file for the output is needed")
    with output.open("rb") as file:
        first = file.readline()
    if not first:
        return None
    try:
        line = json.loads(first)
        if isinstance(line, dict) and {"job", "row", "overall"} <= line.keys():
            return str(line["job"])
    except (ValueError, RecursionError):
        pass
    raise InputError(f"{output} was not written by this command and is left alone; choose another output")


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
