"""True texts from a user's file."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from rewards.audit.variants import TrueText
from rewards.errors import InputError
from rewards.images import to_pil
from rewards.jobs.sources import open_source


def read_true_texts(path: Path, limit: int | None = None) -> list[TrueText]:
    """Rows of a file as true texts.

    Args:
        path: JSON lines, CSV, Parquet or a dataset folder with `image` (a path relative to the file, or bytes), `text`
            (or `prompt`, for pictures of prompts), and where there are: `cluster`, and what the reward needs
            (`question`, `scene`).
        limit: rows taken from the start.

    Raises:
        InputError: a row without a picture that can be read, or without text, by its place in the file.
    """
    source = open_source(path)
    scanned = list(islice(source.scan(None, required=False), limit))
    if (damaged := next((row for row in scanned if row.problem is not None), None)) is not None:
        raise InputError(f"{path}, line {damaged.line}: {damaged.problem}")
    found = []
    for place in scanned:
        try:
            (row,) = source.read([place.position])
        except ValueError as error:
            raise InputError(f"{path}, line {place.line}: {error}") from error
        image, text, cluster = row.get("image"), row.get("text", row.get("prompt")), row.get("cluster")
        if not isinstance(text, str) or not text.strip() or image is None:
            keys = ", ".join(sorted(row))
            raise InputError(f"{path}, line {place.line}: needs 'image' and a true 'text' or 'prompt'; it has {keys}")
        if isinstance(image, str) and not Path(image).is_absolute():
            image = str(path.parent / image)
        others = {name: value for name, value in row.items() if name not in ("image", "text", "prompt", "cluster")}
        try:
            picture = to_pil(image)  # as trainers hand pictures to a function of the user's own
        except (InputError, OSError) as error:
            raise InputError(f"{path}, line {place.line}: {error}") from error
        found.append(TrueText(picture, text, None if cluster is None else str(cluster), others))
    return found
