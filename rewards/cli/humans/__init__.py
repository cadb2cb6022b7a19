"""`rewards humans`: agreement of metrics and rewards with people; this file is only the wiring.

- columns.py: `agreement`, columns of a table of your own
- pictures.py: `tifa`, `dsg`, `geneval`
- texts.py: `mmhe`, `captions`, `thumb`
- pairs.py: `pairs`
- judges.py: `shapes`, `probe`, `explain`
- shared.py: the metrics that can be run, the table of agreement
"""

from __future__ import annotations

import typer

from rewards.cli.humans.columns import agreement
from rewards.cli.humans.judges import explain, probe, shapes
from rewards.cli.humans.pairs import pairs
from rewards.cli.humans.pictures import dsg, geneval, tifa
from rewards.cli.humans.texts import captions, mmhe, thumb

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Does a reward agree with people? Meta-evaluation against human judgments.",
)
for command in (tifa, dsg, geneval, agreement, shapes, probe, explain, mmhe, captions, thumb, pairs):
    app.command()(command)
