"""`audit_before: true`: a small audit that a trainer makes of its reward before it trains on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rewards.audit.findings import Findings
from rewards.audit.page import write_audit
from rewards.audit.pictures import audit_pictures
from rewards.audit.texts import audit_texts
from rewards.audit.variants import TrueText
from rewards.errors import InputError
from rewards.reward import Reward

ROWS = 32
"""Rows that are audited: some seconds where a run takes hours."""


def audit_before(reward: Reward, rows: Sequence[TrueText], folder: Path, *, drawn: bool) -> Findings:
    """Audit the reward of a run on some of its held-out rows; print the table, keep `audit.json` and `audit.html`.

    Args:
        reward: what will be trained on.
        rows: of the run; the first :data:`ROWS` are taken.
        folder: the run's.
        drawn: whether pictures are judged, and not texts.

    Raises:
        InputError: fewer than two rows.
    """
    if len(rows) < 2:
        raise InputError(f"audit_before needs at least 2 held-out rows with a truth, got {len(rows)}")
    still = reward.for_evaluation() if reward.remembers else reward  # what is only tried must teach it nothing
    found = (audit_pictures if drawn else audit_texts)(still, rows[:ROWS])
    write_audit(found, folder / "audit.html", folder / "audit.json")
    print(f"{found.table().text()}\n{found.verdict()}", flush=True)
    return found
