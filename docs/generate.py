"""The pages that are made from the code: a page a command, the metrics' glossary, and the reference of each room."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path

import click
import typer.main

import rewards
from rewards.cli.app import app
from rewards.hosts.__main__ import HOSTS
from rewards.runs.glossary import METRICS

ROOMS = {
    "rewards": "What users import",
    "rewards.judges": "Models that look at pictures",
    "rewards.harmonic": "HarmonicEval, a file a subsection of the paper's section 2",
    "rewards.tifa": "TIFA: questions, their store, matching, scores",
    "rewards.runs": "What every run leaves on disk",
    "rewards.jobs": "Resumable passes over rows",
    "rewards.rerank": "Best of n",
    "rewards.audit": "What a reward accepts, before a policy finds out",
    "rewards.report": "From runs to curves and the page",
    "rewards.trainers": "Trainers for models that draw and models that write",
    "rewards.hosts": "Rewards inside other trainers",
    "rewards.humans": "Agreement with people",
    "rewards.shapes": "The embedded world with known truth",
}
"""Rooms of the house in the order of their dependencies; those that are not there are left out."""


def write_all(docs: Path) -> None:
    """Write `commands/`, `reference/` and `metrics.md` anew."""
    for name in ("commands", "reference"):
        shutil.rmtree(docs / name, ignore_errors=True)
        (docs / name).mkdir()
    pages = list(_commands(typer.main.get_command(app), ()))
    for name, text in pages:
        (docs / "commands" / f"{name}.md").write_text(text, encoding="utf-8")
    (docs / "commands" / "index.md").write_text(_toc("Commands", [name for name, _ in pages]), encoding="utf-8")
    names = []
    for room, title in ROOMS.items():
        modules = list(_modules(room))
        if modules:
            names.append(room)
            (docs / "reference" / f"{room}.md").write_text(_room(room, title, modules), encoding="utf-8")
    (docs / "reference" / "index.md").write_text(_toc("Reference", names), encoding="utf-8")
    head = (docs / "guides" / "hosts_head.md").read_text(encoding="utf-8")
    (docs / "guides" / "hosts.md").write_text(head + "\n" + _hosts(), encoding="utf-8")
    (docs / "metrics.md").write_text(_metrics(), encoding="utf-8")


def _hosts() -> str:
    """A section a host: each file's own docstring says how the host takes it."""
    text = ""
    for _, file in sorted(HOSTS.items()):
        told = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        told = re.sub(r":\w+:`~?([\w.]+)`", lambda role: f"`{role[1].rpartition('.')[2]}`", told)
        text += f"## {told.partition(':')[0]}\n\n{told}\n\n"
    return text


def _toc(title: str, names: list[str]) -> str:
    return f"# {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """A page for every command that does something; groups become the first word of their commands' pages."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        for name in sorted(inner):
            yield from _commands(inner[name], (*path, name))
        return
    name = " ".join(path)
    context = click.Context(command, info_name=f"rewards {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    rows = ""
    for parameter in command.params:
        record = parameter.get_help_record(context)
        names, text = record if record else (parameter.make_metavar(context), getattr(parameter, "help", None))
        rows += f"`{names}`\n: {_plain(text or '')}\n\n"
    help_text = "\n\n".join(map(_plain, inspect.cleandoc(command.help or "").split("\n\n")))
    yield "-".join(path), f"# rewards {name}\n\n{help_text}\n\n```sh\n{usage}\n```\n\n{rows}"


def _plain(text: str) -> str:
    """Help as one paragraph of Markdown; what stands in backticks is left as it is."""
    parts = " ".join(text.split()).split("`")
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(r"([<*\[_])", r"\\\1", parts[index])
    return "`".join(parts)


def _modules(room: str) -> Iterator[str]:
    """Names of a room's public modules, of the root only those in no room."""
    root = Path(rewards.__file__).parent
    folder = root.joinpath(*room.split(".")[1:])
    files = sorted(folder.glob("*.py") if room == "rewards" else folder.rglob("*.py"))
    for file in files:
        parts = file.relative_to(root.parent).with_suffix("").parts
        if "hosts" in parts and parts[-2:] not in (("hosts", "__init__"), ("hosts", "shared")):
            continue  # they import their hosts, and have a guide
        if "build" in parts or any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        yield ".".join(part for part in parts if part != "__init__")


def _room(room: str, title: str, modules: list[str]) -> str:
    text = f"# {room}\n\n{title}.\n\n"
    if room == "rewards":
        for name in sorted(rewards.__all__, key=str.lower):
            home = f"{getattr(rewards, name).__module__}.{name}"
            first = (inspect.getdoc(getattr(rewards, name)) or "").split("\n\n")[0].replace("\n", " ")
            first = re.sub(r":\w+:`~?([\w.]+)`", lambda role: f"`{role[1].rpartition('.')[2]}`", first)
            text += f"- {{py:obj}}`rewards.{name} <{home}>`: {first}\n"
        text += "\n"
    for module in modules if room != "rewards" else [m for m in modules if m != "rewards"]:
        text += f"## {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n```\n\n"
    return text


def _metrics() -> str:
    rows = "".join(f"| `{escape(metric.key, quote=False)}` | {metric.meaning} |\n" for metric in METRICS)
    return (
        "# Metrics\n\nEvery trainer appends to `metrics.jsonl`, one JSON object a line, under these names; the tracker "
        "of your choice gets the same. A value that does not exist is null, never 0. This page is made from "
        "`rewards.runs.glossary`, as are the notes and axes of `rewards curves`.\n\n"
        f"| key | meaning |\n| --- | --- |\n{rows}"
    )
