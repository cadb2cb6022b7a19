"""Prompts from wherever users keep them: a text file, JSON, JSONL, a data set on disk, or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rewards.errors import InputError
from rewards.runs.files import text_lines
from rewards.tifa.normalization import collapse_blanks
from rewards.tifa.questions.question import check_storable, read_json_list

TEXT_COLUMNS = ("caption", "prompt", "text")
"""Where a row's prompt is looked for, in this order; TIFA's own files say "caption"."""


class Prompt(NamedTuple):
    """A text to make pictures from, and its id: what the file says, or else the text itself without superfluous
    blanks."""

    id: str | int
    text: str


def read_prompts(source: str | Path) -> list[Prompt]:
    """Read prompts.

    Args:
        source: "-" for standard input; a folder written by `Dataset.save_to_disk`; a `.json` file with a list of
            objects (as TIFA's text inputs) or texts; a `.jsonl` file; any other file is text with one prompt a line.
            Standard input is JSONL where its first line starts with "{". Objects have the prompt under one of
            :data:`TEXT_COLUMNS` and may have an `id`.

    Returns:
        The prompts in order. The same id with the same text counts once; blank lines are left out.

    Raises:
        InputError: A row without a prompt, or one id for two texts; the message names the row.
        OSError: The file cannot be opened.
    """
    if str(source) == "-":
        lines = text_lines(sys.stdin.read())
        is_json = next((line for line in lines if line.strip()), "").lstrip().startswith("{")
        return _collect(_json_lines(lines, "standard input") if is_json else lines, "standard input")
    path = Path(source)
    if path.is_dir():
        return _collect(_dataset_rows(path), str(path))
    if path.suffix == ".json":
        return _collect(read_json_list(path), str(path))
    try:
        lines = text_lines(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}") from error
    return _collect(_json_lines(lines, str(path)) if path.suffix == ".jsonl" else lines, str(path))


def _json_lines(lines: Sequence[str], name: str) -> Iterable[object]:
    for number, line in enumerate(lines):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{name}, line {number + 1} is not JSON: {error}") from error


def _dataset_rows(path: Path) -> Iterable[object]:
    from datasets import Dataset, load_from_disk

    try:
        data = load_from_disk(str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path} is not a data set written by Dataset.save_to_disk: {error}") from error
    if not isinstance(data, Dataset):
        raise InputError(f"{path} holds the splits {', '.join(data)}; pass the folder of one of them")
    # Pictures in other columns need not be decoded.
    kept: Iterable[object] = data.select_columns([name for name in ("id", *TEXT_COLUMNS) if name in data.column_names])
    return kept


def _collect(rows: Iterable[object], name: str) -> list[Prompt]:
    found: dict[str | int, Prompt] = {}
    for number, row in enumerate(rows):
        prompt = _prompt(row, f"{name}, row {number}")
        if prompt is None:
            continue
        first = found.setdefault(prompt.id, prompt)
        if collapse_blanks(first.text) != collapse_blanks(prompt.text):
            raise InputError(f"{name}, row {number}: id {prompt.id!r} is {first.text!r} above, here {prompt.text!r}")
    return list(found.values())


def _prompt(row: object, where: str) -> Prompt | None:
    if isinstance(row, str):
        if not row.strip():
            return None
        row = {"text": row}
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is a {type(row).__name__}; expected a text or an object")
    text = next((row[column] for column in TEXT_COLUMNS if row.get(column) is not None), None)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where} has no text under {', '.join(map(repr, TEXT_COLUMNS))}; its keys are {list(row)}")
    id = row.get("id")
    if id is not None and (isinstance(id, bool) or not isinstance(id, (str, int))):
        raise InputError(f"{where}: id {id!r} is neither a text nor a whole number")
    try:
        check_storable(id, text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return Prompt(collapse_blanks(text) if id is None else id, text)
