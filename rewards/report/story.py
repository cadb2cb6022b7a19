"""What one run's held-out evaluations tell, written down: is the gain real, what came out, what is not learned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from rewards.errors import InputError
from rewards.report.cards import Pictures, case, progress
from rewards.report.findings import (
    Saying,
    changed_words,
    overrated,
    part_means,
    ranked,
    saying,
    spread_out,
    surplus,
    verdict,
)
from rewards.report.reading import Run
from rewards.runs.evaluations import Evaluation, EvaluationLog, HeldOutSample, Judgment
from rewards.runs.samples import read_samples
from rewards.runs.summary import Gain, gains, gap_growth
from rewards.tables import Table

_UNSEEN = " A run keeps the pictures of some samples only."


class Story:
    """The parts of the page that are about one run.

    Args:
        run: The run.
        several: Whether others stand beside it, so that its name is told and less is shown.
    """

    def __init__(self, run: Run, several: bool = False) -> None:
        self.run = run
        self.prefix = f"{run.name} · " if several else ""
        self.limit = 3 if several else 6
        self.pictures = Pictures(run.folder)
        self.ends = _ends(EvaluationLog(run.folder).ends())
        self.last: Evaluation | None = self.ends[-1] if self.ends else None
        self.audits = [name for name in self.last.audits() if name in self.ends[0].audits()] if self.last else []
        self.gains: dict[str | None, Mapping[str, Gain]] = {}
        self.gaps: dict[str, Gain] = {}
        if len(self.ends) == 2:
            first, last = self.ends
            self.gains = {audit: gains(first, last, audit) for audit in (None, *self.audits)}
            self.gaps = {audit: gap_growth(first, last, audit) for audit in self.audits}

    def verdicts(self) -> str:
        """A sentence for each audit: how much of the gain it confirms."""
        html = ""
        for audit, gap in self.gaps.items():
            judge = self.ends[0].reward
            told = verdict(judge, self.gains[None]["overall"], audit, self.gains[audit]["overall"], gap)
            html += f'<p class="verdict{" bad" if gap.low > 0 else ""}">{escape(self.prefix + told)}</p>'
        return html

    def tiles(self) -> str:
        """Cards: gains of judge and audits, gaps, different texts, and what could not be judged."""
        tiles = ""
        for audit, parts in self.gains.items():
            label = f"{self.ends[0].reward}, judge" if audit is None else f"{audit}, audit"
            # Green is for a gain that somebody who does not train confirms.
            tiles += self._gain(label, parts["overall"], "plain" if audit is None and self.audits else "up", "down")
        for audit, gap in self.gaps.items():
            tiles += self._gain(f"gap: judge − {audit}", gap, "down", "plain")
        said = [found for evaluation in self.ends if (found := saying(evaluation))]
        if len(said) == 2:
            tiles += self._card("different texts", " → ".join(f"{len(s.texts)}" for s in said), f"of {said[1].count}")
        return tiles + self._abstentions()

    def parts_table(self) -> str:
        """Before, after and change of every part, for the reward and each audit."""
        rows = []
        for audit, parts in self.gains.items():
            for part in ("overall", *(part for part in parts if part != "overall")):
                gain = parts[part]
                name = f"{self.ends[0].reward} (judge)" if audit is None else f"{audit} (audit)"
                change = f"{gain.gain:+.3f}{_half(gain)}"
                label = name if part == "overall" else f" {part}"
                rows.append((label, f"{gain.before:.3f}", f"{gain.after:.3f}", change, f"{gain.count}"))
        if not rows:
            return ""
        steps = [f"step {evaluation.step}" for evaluation in self.ends]
        return f'<div class="below">{Table("", ("held-out", *steps, "change", "prompts"), rows).html()}</div>'

    def sections(self) -> list[tuple[str, str]]:
        """Titles and contents, those that have any."""
        if self.last is None:
            return [("Samples from training", html)] if (html := self._from_training()) else []
        found = [
            ("Where judge and audit disagree most", self._disagreements(self.last)),
            ("What is said", self._said()),
            ("Not learned yet", self._not_learned(self.last)),
            ("Before and after", self._progress()),
            ("Lowest and highest scores", self._cases(self.last)),
        ]
        return [(title, html) for title, html in found if html]

    def _from_training(self) -> str:
        """The first and the last samples that a run without held-out prompts kept."""
        rows = read_samples(self.run.folder)
        steps = sorted({row["step"] for row in rows})
        html = ""
        for step in dict.fromkeys((steps[0], steps[-1]) if steps else ()):
            kept = [row for row in rows if row["step"] == step]
            samples = [
                HeldOutSample(
                    index, row["prompt"], Judgment(row["score"], row["parts"], None, {"answers": row["details"]}),
                    text=row.get("text"),
                )
                for index, row in enumerate(kept[: 2 * self.limit])
            ]  # fmt: skip
            html += f"<h3>step {step}</h3>{self._cards(samples, step)}"
        return html

    def _gain(self, label: str, gain: Gain, when_up: str, when_down: str) -> str:
        clear = gain.low > 0 or gain.high < 0
        kind = (when_up if gain.gain > 0 else when_down) if clear else ""
        return self._card(label, f"{gain.before:.3f} → {gain.after:.3f}", f"{gain.gain:+.3f}{_half(gain)}", kind)

    def _card(self, label: str, value: str, small: str, kind: str = "") -> str:
        head = f'<div class="tile"><span>{escape(self.prefix + label)}</span><b>{value}</b>'
        return f'{head}<small class="{kind}">{escape(small)}</small></div>'

    def _abstentions(self) -> str:
        tiles = ""
        for name in self.run.rewards("rewards"):
            abstained = self.run.total(f"rewards/{name}/abstained")
            total = abstained + self.run.total(f"rewards/{name}/overall/count")
            if total and (abstained or not self.prefix):
                small = f"{abstained:,.0f} of {total:,.0f} samples"
                tiles += self._card(f"{name}, not judged", f"{abstained / total:.1%}", small)
        return tiles

    def _cards(self, samples: Sequence[HeldOutSample], step: int) -> str:
        cards = "".join(case(self.pictures, step, sample) for sample in samples)
        return f'<div class="samples">{cards}</div>'

    def _disagreements(self, last: Evaluation) -> str:
        html = ""
        for audit in self.audits:
            apart = overrated(last, audit)
            if apart:
                shown = apart[: self.limit]
                all_seen = all(self.pictures.file(last.step, sample) for sample in shown)
                html += _note(f"The {len(shown)} of {len(last.samples)} held-out samples at step {last.step} that the "
                              f"judge scores most above {audit}.{'' if all_seen else _UNSEEN}")  # fmt: skip
                html += self._cards(shown, last.step)
        return html

    def _said(self) -> str:
        said = [(evaluation.step, found) for evaluation in self.ends if (found := saying(evaluation))]
        if not said:
            return ""
        rows = [
            ["different texts", *(f"{len(found.texts)} of {found.count}" for _, found in said)],
            ["words a text", *(f"{found.length:.1f}" for _, found in said)],
            ["entropy of the words, bits", *(f"{found.entropy:.2f}" for _, found in said)],
        ]
        html = Table("", ["", *(f"step {step}" for step, _ in said)], rows).html()
        if len(said) == 2:
            html += _words(said[0][1], said[1][1])
        for step, found in said:
            often = [(text or "(nothing)", f"{count}") for text, count in found.texts.most_common(self.limit)]
            html += Table("", (f"most frequent at step {step}", "times"), often).html()
        return f'<div class="tables">{html}</div>'

    def _not_learned(self, last: Evaluation) -> str:
        """The parts with the lowest means, by an audit that tells parts where there is one."""
        audit = next((audit for audit in self.audits if part_means(last, audit)), None)
        html = ""
        counts = [surplus(evaluation, audit) for evaluation in self.ends]
        if counts[-1] is not None:
            told = " → ".join("–" if found is None else f"{found[0]:.1%} ({found[1]:,.0f})" for found in counts)
            html += _note(f"Pictures with objects that nobody asked for, and how many objects those are: {told}.")
        for part, mean in list(part_means(last, audit).items())[:2]:
            by = "judge" if audit is None else f"audit {audit}"
            html += f"<h3>{escape(part)}: {mean:.2f} by the {escape(by)}</h3>"
            samples = ranked(last, audit, part)
            lowest = [s for s in samples[: len(samples) // 2 + 1] if self._shows(last.step, s)]
            html += self._cards((lowest or samples)[: self.limit // 2], last.step)
        return html

    def _progress(self) -> str:
        if len(self.ends) < 2:
            return ""
        first, last = self.ends
        before = {(sample.index, sample.sample): sample for sample in first.samples}
        both = [s for s in last.samples if self._shows(last.step, s) and (s.index, s.sample) in before]
        if not both:
            return ""
        shown = spread_out([s for s in both if self.pictures.file(last.step, s)] or both, 2 * self.limit)
        cards = "".join(
            progress(self.pictures, [(first.step, before[s.index, s.sample]), (last.step, s)]) for s in shown
        )
        note = _note(f"The same held-out prompts and noise; {len(shown)} of {len(last.samples)} are shown.")
        return f'{note}<div class="samples">{cards}</div>'

    def _cases(self, last: Evaluation) -> str:
        ordered = ranked(last)
        count = min(self.limit, max(1, len(ordered) // 2))
        abstained = [sample for sample in last.samples if sample.judgment.overall is None]
        html = _note(f"By the judge at step {last.step}, of all {len(last.samples)} held-out samples.")
        groups = (("Lowest", ordered[:count]), ("Highest", ordered[::-1][:count]), ("Not judged", abstained))
        for title, samples in groups:
            if samples:
                html += f"<h3>{title}</h3>{self._cards(samples[: self.limit], last.step)}"
        return html

    def _shows(self, step: int, sample: HeldOutSample) -> bool:
        """Whether there is something to look at."""
        return sample.text is not None or self.pictures.file(step, sample) is not None


def _ends(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The first and the last; the last alone where they cannot be compared."""
    if len(evaluations) < 2:
        return list(evaluations)
    first, last = evaluations[0], evaluations[-1]
    try:
        gains(first, last)
    except InputError:  # a held-out set that was changed in between
        return [last]
    return [first, last]


def _words(before: Saying, after: Saying) -> str:
    changed = changed_words(before, after, 8)
    rows = [(word, f"{old} of {before.count}", f"{new} of {after.count}") for word, old, new in changed]
    return Table("", ("texts with the word", "before", "after"), rows).html() if rows else ""


def _half(gain: Gain) -> str:
    return f" ± {gain.high - gain.gain:.3f}" if math.isfinite(gain.high) else ""


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
