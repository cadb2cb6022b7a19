"""A small sound MMHE file, to be broken by the tests."""

import copy
import json

from rewards.humans.mmhe.records import CRITERIA


def record(id_="a", task="captioning", best=0, levels=(5, 3, 1), **changes):
    """One documented record; candidate k is rated levels[k] on every criterion."""
    candidates = [
        {"text": f"text {k}", "model": f"m{k}", "ratings": {name: [level] * 3 for name in CRITERIA}}
        for k, level in enumerate(levels)
    ]
    row = {"id": id_, "task": task, "image": "a.png", "input": None, "box": None, "candidates": candidates}
    if task in ("vqa", "document"):
        row["input"] = "what?"
    if task == "referring":
        row["box"] = [1, 2, 3, 4]
    return copy.deepcopy({**row, "choices": [best] * 3, **changes})


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path
