"""The report: one HTML page without outside files, and the plots, from run folders that may still be growing."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from rewards._version import __version__
from rewards.report.charts import Section, build_sections
from rewards.report.curves import Run, load_runs
from rewards.report.gains import Gain, held_out_gain
from rewards.report.plots import write_plots
from rewards.report.samples import cases_section, progress_section
from rewards.report.svg import chart_figure
from rewards.runs.files import write_whole

_HERE = Path(__file__).parent

GLOSSARY = {
    "held-out": "Prompts that are never trained on, sampled from the same noise at each evaluation.",
    "audit": "A second judge, or the exact oracle of the shapes world, that never trains.",
    "gap": "Reward minus audit on the same samples. A gap that grows tells of a policy that games its judge.",
    "abstained": "Samples that could not be judged. They take no part in the training and are never scored 0.",
    "criterion, element type": "What HarmonicEval rates (correctness, fluency, ...) and what TIFA asks about (color, "
    "counting, ...).",
    "weight, deviation": "HarmonicEval weighs a criterion more the surer the judge is of its rating.",
    "importance ratio": "Probability of a sample under the new policy over that under the one that drew it. Exactly 1 "
    "before the first update.",
    "clip fraction": "Share of ratios outside the clip range. Near 0 steps are timid, near 1 most gradients are cut.",
    "KL": "Distance of the policy from the base model.",
    "groups without spread": "Prompts whose samples all score the same. They have no advantage and teach nothing.",
    "shaded band": "Of a running mean, its 95% interval. Above 2,000 steps, where nine of ten single values lie.",
    "95% interval": "Of a running mean: from the spread within its window. Of an evaluation: from that over prompts.",
}


@dataclass
class Table:
    """A table to put at the head of the report, such as a comparison that a program made.

    Attributes:
        title: Heading.
        header: Column names.
        rows: Cells, texts; the first column names the row. A name that begins with a blank is a part of the one above.
        note: A sentence below the heading.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


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
        paths: Run folders (with ``metrics.jsonl``; ``samples.jsonl`` and ``evaluations.jsonl`` where there are). A run
            may be going on, or have logged nothing yet.
        out: Folder for the files; default: the run's own folder, or ``comparison`` beside the first of several.
        title: Heading; default: the runs' names.
        tables: Shown first.
        window: Points of the smoothing window; None takes a tenth of each curve.

    Returns:
        Where the files are.

    Raises:
        InputError: A folder that is not there, or a damaged file.
        OSError: A file cannot be written.

    Example:
        >>> write_report(["runs/demo/ddpo"]).page  # doctest: +SKIP
        PosixPath('runs/demo/ddpo/report.html')
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
    body += [_table(table) for table in tables]
    number = 0
    for group, sections in chapters:
        if len(chapters) > 1:
            body.append(f'<h2 class="chapter">{escape(" · ".join(run.name for run in group))}</h2>')
        body.append(_tiles(group))
        if not sections:
            names = " and ".join(run.name for run in group)
            body.append(f'<p class="empty">Nothing has been logged yet in {escape(names)}.</p>')
        for section in sections:
            figures = []
            for chart in section.charts:
                figures.append(chart_figure(chart, number))
                number += 1
            body.append(f'<h2>{section.title}</h2><div class="charts">{"".join(figures)}</div>')
            if section.slug == "parts" and len(group) == 1:
                body.append(_parts_table(group[0]))
        for run in group:
            body.append(_samples(run, several=len(group) > 1))
        body += [_values_table(group)] if sections else []
    body.append(_glossary())
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(heading)}</title>\n<style>{style}</style></head>\n'
        f"<body><main>{''.join(body)}</main>\n<script>{script}</script></body></html>\n"
    )


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
    steps = "1 step" if run.last_step == 1 else f"{run.last_step:,} steps"
    if run.first_time is None or run.last_time is None:
        return steps
    seconds = run.last_time - run.first_time
    if seconds >= 5400:
        length = f"{seconds / 3600:.1f} h"
    else:
        length = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    return f"{steps} in {length}" if seconds else steps


def _tiles(runs: Sequence[Run]) -> str:
    tiles = []
    for run in runs:
        prefix = f"{run.name} · " if len(runs) > 1 else ""
        for branch, kind in (("rewards", "held-out"), ("audit", "held-out audit")):
            for name in run.rewards(f"eval/{branch}"):
                gain = held_out_gain(run, branch, name)
                if gain is not None:
                    tiles.append(_gain_tile(f"{prefix}{name}, {kind}", gain))
        tiles += [tile for failed, tile in _count_tiles(run, prefix) if failed or len(runs) == 1]
    return f'<div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _gain_tile(label: str, gain: Gain) -> str:
    change = gain.after - gain.before
    clear = math.isfinite(gain.half) and abs(change) > gain.half
    direction = ("up" if change > 0 else "down") if clear else ""
    interval = f" ± {gain.half:.3f}" if math.isfinite(gain.half) else ""
    return (
        f'<div class="tile"><span>{escape(label)}</span><b>{gain.before:.3f} → {gain.after:.3f}</b>'
        f'<small class="{direction}">{change:+.3f}{interval}</small></div>'
    )


def _count_tiles(run: Run, prefix: str) -> list[tuple[float, str]]:
    """For each reward, how many samples could not be judged, and the tile that says so."""
    tiles = []
    for name in run.rewards("rewards"):
        abstained = run.total(f"rewards/{name}/abstained")
        judged = run.total(f"rewards/{name}/overall/count")
        total = judged + abstained
        if total:
            head = f'<div class="tile"><span>{escape(prefix + name)}, not judged</span><b>{abstained / total:.1%}</b>'
            tiles.append((abstained, f"{head}<small>{abstained:,.0f} of {total:,.0f} samples</small></div>"))
    return tiles


def _parts_table(run: Run) -> str:
    """Before, after and counts by part, for the reward and each audit."""
    rows = []
    for branch in ("rewards", "audit"):
        for name in run.rewards(f"eval/{branch}"):
            label = f"{name} (audit)" if branch == "audit" else name
            rows.append(_gain_row(run, branch, name, "overall", label, "name"))
            rows += [_gain_row(run, branch, name, part, part, "sub") for part in run.parts(f"eval/{branch}", name)]
    body = "".join(row for row in rows if row)
    if not body:
        return ""
    header = "<tr><th>held-out</th><th>first</th><th>last</th><th>change</th><th>count</th></tr>"
    return f'<div class="table" style="margin-top:14px"><table>{header}{body}</table></div>'


def _gain_row(run: Run, branch: str, name: str, part: str, label: str, kind: str) -> str:
    gain = held_out_gain(run, branch, name, part)
    if gain is None:
        return ""
    counts = run.series(f"eval/{branch}/{name}/{part}/count").values
    count = f"{counts[-1]:,.0f}" if len(counts) else ""
    interval = f' <span class="half">± {gain.half:.3f}</span>' if math.isfinite(gain.half) else ""
    cells = f"<td>{gain.before:.3f}</td><td>{gain.after:.3f}</td><td>{gain.after - gain.before:+.3f}{interval}</td>"
    return f'<tr><td class="{kind}">{escape(label)}</td>{cells}<td>{count}</td></tr>'


def _samples(run: Run, several: bool) -> str:
    html = progress_section(run) + cases_section(run, limit=3 if several else 6)
    if not several:
        return html
    html = _parts_table(run) + html
    return f"<details><summary>Parts and samples of {escape(run.name)}</summary>{html}</details>" if html else ""


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
    return (
        f"<details><summary>All {len(keys)} logged values</summary>"
        f'<div class="table"><table>{header}{"".join(rows)}</table></div></details>'
    )


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.5g}"


def _table(table: Table) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = ""
    for name, *cells in table.rows:
        values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        kind = "sub" if name[:1].isspace() else "name"
        rows += f'<tr><td class="{kind}">{escape(name.strip())}</td>{values}</tr>'
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<h2>{escape(table.title)}</h2>{note}<div class="table"><table><tr>{header}</tr>{rows}</table></div>'


def _glossary() -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in GLOSSARY.items())
    return f"<footer><details><summary>Glossary</summary><dl>{rows}</dl></details></footer>"


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip("-") or "run"
