"""`audit.html`: what an audit found, on one page without outside files."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from rewards._version import __version__
from rewards.audit.findings import BOUND, CONTROL, Example, Finding, Findings
from rewards.report.cards import embedded
from rewards.report.page import html_page
from rewards.runs.files import write_json, write_whole

_READ = (
    "Each row is one way to leave the truth. Accepted: the share of pairs in which the reward scores it at least as "
    "high as the truth, ties included; the bar is the share, the line its 95% interval. A policy that is trained on "
    "this reward has no reason to avoid what is accepted."
)


def write_audit(findings: Findings, page: Path | None = None, record: Path | None = None, bound: float = BOUND) -> None:
    """Write the page, the JSON, or both.

    Raises:
        OSError: a file cannot be written.
    """
    if page is not None:
        write_whole(page, render(findings, bound))
    if record is not None:
        write_json(record, findings.record())


def render(findings: Findings, bound: float = BOUND) -> str:
    """The page's HTML."""
    title = f"What {findings.reward} accepts"
    bad = " bad" if findings.unsafe(bound) else ""
    kinds = "pictures" if findings.data.get("kind") == "pictures" else "texts"
    lead = f"{findings.rows} true {kinds}, and what a policy could make in their place. By rewards {__version__}."
    body = [
        f'<h1>{escape(title)}</h1><p class="lead">{lead}</p>',
        f'<p class="verdict{bad}">{escape(findings.verdict(bound))}</p>',
        f'<h2>Kinds</h2><p class="note">{_READ}</p>{_kinds(findings, bound)}',
    ]
    if (prior := findings.prior()) is not None:
        body.append(f"<h2>{escape(prior.title)}</h2>{prior.html()}")
    body.append(f"<h2>All numbers</h2>{findings.table().html()}")
    shown = [found for found in findings.ranked() if found.examples]
    body += ["<h2>The worst pairs</h2>", *(_examples(found, n == 0) for n, found in enumerate(shown))]
    return html_page(title, "".join(body))


def _kinds(findings: Findings, bound: float) -> str:
    rows = ""
    for found in findings.ranked():
        share = found.accepted
        if math.isnan(share.value):
            continue
        low, high = (share.value if math.isnan(end) else end for end in (share.low, share.high))
        kind = "plain" if found.family == CONTROL else "bad" if share.value > bound else "good"
        bar = (
            f'<div class="bar {kind}"><i style="width:{100 * share.value:.1f}%"></i>'
            f'<b style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></b></div>'
        )
        name = f"{escape(found.kind)}<small>{escape(found.family)}</small>"
        rows += f'<tr><td class="name">{name}</td><td class="wide">{bar}</td><td>{share.value:.1%}</td></tr>'
    header = '<tr><th>kind</th><th class="wide">accepted</th><th></th></tr>'
    return f'<div class="table kinds"><table>{header}{rows}</table></div>'


def _examples(found: Finding, first: bool) -> str:
    cases = "".join(map(_example, found.examples))
    head = f"{escape(found.kind)}: {found.accepted.value:.1%} of {found.pairs} pairs"
    state = " open" if found.family != CONTROL and found.accepted.value > BOUND else ""
    kind = "section first" if first else "section"
    return f'<details class="{kind}"{state}><summary>{head}</summary><div class="samples">{cases}</div></details>'


def _example(example: Example) -> str:
    drawn = example.variant == example.truth  # the picture is another one, and the prompt stays
    shots = [(example.true_image, "the truth", example.truth)]
    if drawn:
        shots.append((example.image, "judged instead", example.truth))
    pictures = "".join(f'<div class="shot">{embedded(p, alt)}{word}</div>' for p, word, alt in shots)
    said = "" if drawn else f'<p class="said">{escape(example.variant) or "<i>nothing</i>"}</p>'
    score = f'<div class="judgment">score <b>{0.0 - round(example.drop, 3):+.3f}</b> beside the truth</div>'
    return (
        f'<div class="case"><p>{escape(example.truth)}</p>'
        f'<div class="phases pair">{pictures}<div>{said}{score}</div></div></div>'
    )
