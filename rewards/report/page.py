"""The report: one HTML page without outside files, and the plots, from run folders that may still be growing."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from rewards._version import __version__
from rewards.report.charts import Section, build_sections
from rewards.report.draw import chart_figure, write_plots
from rewards.report.reading import Run, load_runs
from rewards.report.story import Story
from rewards.runs.files import write_whole
from rewards.runs.glossary import describe
from rewards.tables import Table

_HERE = Path(__file__).parent

GLOSSARY = {
    "held-out": "Prompts that are never trained on, sampled from the same noise at each evaluation.",
    "audit": "A second judge, or the exact oracle of the shapes world, that never trains.",
    "criterion, element type": "What HarmonicEval rates (correctness, fluency, ...) and what TIFA asks about (color, "
    "counting, ...).",
    "bands": "Of a running mean, its 95% interval. Above 2,000 steps, where nine of ten single values lie.",
    "95% interval": "Of a running mean: from the spread within its window. Of an evaluation: from that over prompts.",
}
"""Words of the page that are no keys; those are in :mod:`rewards.runs.glossary`."""


@dataclass
class Report:
    """The files that were written, and the names of runs that have not logged anything yet."""

    page: Path
    plots: list[Path] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)


def write_report(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    title: str | None = None,
    tables: Sequence[Table] = (),
    window: int | None = None,
) -> Report:
    """Write ``report.html`` and ``curves/*.png`` and ``*.svg`` for one run or several.

    Runs whose rewards have a name in common are compared on the same charts; others get a chapter each.

    Args:
        paths: Run folders, with ``metrics.jsonl`` or what TRL leaves (``trainer_state.json``). A run may be going on,
            or have logged nothing yet.
        out: Folder for the files; default: the run's own folder, or ``comparison`` beside the first of several.
        title: Heading; default: the runs' names.
        tables: Shown first, such as a comparison that a program made.
        window: Points of the smoothing window; None takes a tenth of each curve.

    Returns:
        Where the files are.

    Raises:
        InputError: A folder that is not there, or a damaged file.
        OSError: A file cannot be written.

    Example:
        >>> write_report(["runs/demo/nft"]).page  # doctest: +SKIP
        PosixPath('runs/demo/nft/report.html')
    """
    runs = load_runs(paths)
    if out is None:
        out = runs[0].folder if len(runs) == 1 else runs[0].folder.resolve().parent / "comparison"
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    chapters = [(group, build_sections(group, window)) for group in _groups(runs)]
    plots = []
    for index, (group, sections) in enumerate(chapters):
        folder = out / "curves" if len(chapters) == 1 else out / "curves" / f"{index + 1}-{_slug(group[0].name)}"
        if sections:
            plots += write_plots(sections, folder)
    page = out / "report.html"
    write_whole(page, render(runs, chapters, title, tables))
    return Report(page, plots, [run.name for run in runs if run.last_step is None])


def render(
    runs: Sequence[Run],
    chapters: Sequence[tuple[Sequence[Run], Sequence[Section]]],
    title: str | None = None,
    tables: Sequence[Table] = (),
) -> str:
    """The page's HTML (see :func:`write_report`)."""
    heading = title or " · ".join(run.name for run in runs)
    body = [f"<h1>{escape(heading)}</h1>", f'<p class="lead">{escape(_lead(runs))}</p>']
    body += [f"<h2>{escape(table.title)}</h2>{table.html()}" for table in tables]
    number = 0
    for group, sections in chapters:
        if len(chapters) > 1:
            body.append(f'<h2 class="chapter">{escape(" · ".join(run.name for run in group))}</h2>')
        if not sections:
            names = " and ".join(run.name for run in group)
            body.append(f'<p class="empty">Nothing has been logged yet in {escape(names)}.</p>')
        figures = {section.slug: _figures(section, number + 100 * i) for i, section in enumerate(sections)}
        number += 100 * len(sections)
        body.append(_chapter(group, figures))
    body.append(_glossary({key for run in runs for key in run.keys}))
    return html_page(heading, "".join(body))


def html_page(title: str, body: str) -> str:
    """A whole page in the report's dress, without outside files.

    Args:
        title: plain text.
        body: HTML.
    """
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>\n<style>{style}</style></head>\n'
        f"<body><main>{body}</main>\n<script>{script}</script></body></html>\n"
    )


def _chapter(group: Sequence[Run], figures: dict[str, str]) -> str:
    """What is most worth knowing first: is the gain real, the curves, the outputs, and then the machinery."""
    stories = [Story(run, several=len(group) > 1) for run in group]
    html = "".join(story.verdicts() for story in stories)
    tiles = "".join(story.tiles() for story in stories)
    html += f'<div class="tiles">{tiles}</div>' if tiles else ""
    html += _fold("Reward", figures.get("reward", ""), first=True)
    parts = figures.get("parts", "") + (stories[0].parts_table() if len(group) == 1 else "")
    html += _fold("By criterion and element type", parts)
    for story in stories:
        sections = story.sections()
        if len(group) == 1:
            html += "".join(_fold(title, section) for title, section in sections)
        else:
            inner = story.parts_table() + "".join(f"<h3>{title}</h3>{section}" for title, section in sections)
            html += _fold(f"Parts and outputs of {story.run.name}", inner, closed=True)
    # How the reward was made and how the optimiser fared: for who looks for a cause.
    html += _fold("Weights and deviations", figures.get("weights", ""), closed=True)
    html += _fold("Training", figures.get("training", ""), closed=True)
    return html + (_fold("All logged values", _values_table(group), closed=True) if figures else "")


def _figures(section: Section, number: int) -> str:
    figures = "".join(chart_figure(chart, number + index) for index, chart in enumerate(section.charts))
    return f'<div class="charts">{figures}</div>'


def _fold(title: str, html: str, first: bool = False, closed: bool = False) -> str:
    """A section that folds; on a phone the page's script closes all but the first."""
    if not html:
        return ""
    kind = f'class="section{" first" if first else ""}"{"" if closed else " open"}'
    return f"<details {kind}><summary><h2>{escape(title)}</h2></summary>{html}</details>"


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that share a reward's name stay together; empty runs join the first group."""
    groups: list[tuple[set[str], list[Run]]] = []
    for run in runs:
        names = {*run.rewards("rewards"), *run.rewards("eval/rewards")}
        home = next((group for group in groups if not names or names & group[0]), None)
        if home is None:
            groups.append((names, [run]))
        else:
            home[0].update(names)
            home[1].append(run)
    return [members for _, members in groups]


def _lead(runs: Sequence[Run]) -> str:
    several = len(runs) > 1
    steps = [f"{run.name}: {_extent(run, several)}" if several else _extent(run, several) for run in runs]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{'; '.join(steps)}. Written {now} by rewards {__version__}."


def _extent(run: Run, several: bool) -> str:
    if run.last_step is None:
        return "nothing logged yet" if several else "Nothing logged yet"
    steps = f"1 {run.step_name}" if run.last_step == 1 else f"{run.last_step:,} {run.step_name}s"
    seconds = run.seconds
    if seconds >= 5400:
        length = f"{seconds / 3600:.1f} h"
    else:
        length = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    return f"{steps} in {length}" if seconds else steps


def _values_table(runs: Sequence[Run]) -> str:
    """Every key that was logged: first, last and mean (weighted by counts) of each run."""
    keys = sorted({key for run in runs for key in run.keys})
    rows = []
    for key in keys:
        cells = ""
        for run in runs:
            series = run.series(key)
            values = (series.values[0], series.values[-1], series.mean) if len(series) else ()
            cells += "".join(f"<td>{_plain(value)}</td>" for value in values) or "<td>–</td>" * 3
            cells += f"<td>{len(series):,}</td>"
        rows.append(f"<tr><td><code>{escape(key)}</code></td>{cells}</tr>")
    names = "".join(f'<th colspan="4">{escape(run.name)}</th>' for run in runs)
    header = f"<tr><th></th>{names}</tr>" if len(runs) > 1 else ""
    header += f"<tr><th>key</th>{'<th>first</th><th>last</th><th>mean</th><th>values</th>' * len(runs)}</tr>"
    return f'<div class="table"><table>{header}{"".join(rows)}</table></div>'


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.5g}"


def _glossary(keys: set[str]) -> str:
    """The page's words, and the meaning of every key that was logged."""
    metrics = dict.fromkeys(metric for key in sorted(keys) if (metric := describe(key)))
    words = GLOSSARY | {metric.key: metric.meaning for metric in metrics}
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in words.items())
    return f"<footer><details><summary>Glossary</summary><dl>{rows}</dl></details></footer>"


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip("-") or "run"
