"""The prompts of a language trainer: where they come from, what is in them, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset

from rewards.audit.variants import TrueText
from rewards.errors import InputError
from rewards.images import content_hash as picture_hash
from rewards.runs.identity import content_hash
from rewards.shapes.datasets import scene_from_json
from rewards.shapes.language import describe
from rewards.trainers.language.settings import DataSettings
from rewards.trl_inputs import prompt_text


def load_prompts(settings: DataSettings, which: Mapping[str, object]) -> Dataset:
    """Prompts with pictures, in TRL's columns.

    Args:
        settings: the source.
        which: arguments that choose the rows (`settings.train` or `settings.held_out`).

    Returns:
        A dataset with a conversational `prompt` and `image` or `images`.

    Raises:
        InputError: if the source cannot be read or lacks these columns.
    """
    try:
        dataset = (
            _imported(settings.source)(**which)
            if ":" in settings.source and not Path(settings.source).exists()
            else load_dataset(settings.source, **which)
        )
    except (TypeError, ValueError, OSError) as error:
        raise InputError(f"data source {settings.source!r} with {which}: {error}") from error
    if not isinstance(dataset, Dataset):
        raise InputError(f"data source {settings.source!r} gave {type(dataset).__name__}: name a single split")
    if not len(dataset):
        raise InputError(f"data source {settings.source!r} with {which} gave no rows")
    if missing := [name for name in settings.rename if name not in dataset.column_names]:
        raise InputError(f"data source {settings.source!r} has no column {missing[0]!r}, only {dataset.column_names}")
    dataset = dataset.rename_columns(settings.rename)
    if settings.prompt is not None:
        if "prompt" in dataset.column_names:
            dataset = dataset.remove_columns("prompt")
        message = [{"role": "user", "content": settings.prompt}]
        dataset = dataset.add_column("prompt", [message] * len(dataset))
    if "prompt" not in dataset.column_names or not {"image", "images"} & set(dataset.column_names):
        raise InputError(
            f"data source {settings.source!r} has columns {dataset.column_names}: expected 'image' or 'images', and "
            "'prompt' (or set data.prompt)"
        )
    return dataset


def row_pictures(row: Mapping[str, Any]) -> list[Any]:
    """The pictures of a dataset row in TRL's convention: column `images`, else `image`, else none.

    Example:
        >>> row_pictures({"image": "a.png"})
        ['a.png']
    """
    if row.get("images") is not None:
        return list(row["images"])
    return [row["image"]] if row.get("image") is not None else []


def clusters(rows: Dataset, column: str | None) -> list[str]:
    """What each row shares with others, so that intervals do not treat them as independent.

    Args:
        rows: held-out prompts.
        column: the column that says so; None: `cluster` where there is one, else the prompt with its pictures.

    Raises:
        InputError: there is no such column.
    """
    if column is not None and column not in rows.column_names:
        raise InputError(f"data.cluster is {column!r}; the columns are {', '.join(rows.column_names)}")
    column = column or ("cluster" if "cluster" in rows.column_names else None)
    if column is not None:
        return [str(value) for value in rows[column]]
    return [content_hash([prompt_text(row["prompt"]), *map(picture_hash, row_pictures(row))]) for row in rows]


def true_texts(rows: Dataset, settings: DataSettings, limit: int) -> list[TrueText]:
    """The first rows that have a picture, with a true text about it, for an audit of the reward.

    Raises:
        InputError: no column says what is true.
    """
    column = settings.truth or "scene"
    if column not in rows.column_names:
        raise InputError(
            f"audit_before needs a true text about each picture: data.truth names its column; the columns are "
            f"{', '.join(rows.column_names)}"
        )
    groups = clusters(rows, settings.cluster)
    found = []
    for number, row in enumerate(rows.select(range(min(limit, len(rows))))):
        text = str(row[column]) if settings.truth else str(describe(scene_from_json(row["scene"])))
        others = {name: value for name, value in row.items() if name not in ("prompt", "image", "images")}
        others.setdefault("question", prompt_text(row["prompt"]))
        if pictures := row_pictures(row):
            found.append(TrueText(pictures[0], text, groups[number], others))
    return found


def content_of(rows: Dataset) -> str:
    """A hash of every row, prompts and pictures, for a run's identity; pictures in files count by their path."""
    stored = rows.with_format("arrow")  # as they lie on disk: no picture is decoded
    starts = range(0, len(rows), 1000)
    return content_hash([content_hash(stored[start : start + 1000].to_pylist()) for start in starts])


def _imported(path: str) -> Any:
    """What `package.module:name` names."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"data source {path!r} cannot be imported: {error}") from error
