"""Files of rows: JSON lines, CSV, Parquet, or a Hugging Face dataset on disk, behind one interface.

base.py: `Source`; json_lines.py, comma_separated.py, parquet.py, saved_dataset.py: a kind each.
"""

from __future__ import annotations

from pathlib import Path

from rewards.errors import InputError
from rewards.jobs.sources.base import Row, Scanned, Source

__all__ = ["Row", "Scanned", "Source", "open_source"]


def open_source(path: str | Path) -> Source:
    """The source for a path, by its kind.

    Raises:
        InputError: neither a `.jsonl`, `.csv` or `.parquet` file nor a folder written by `Dataset.save_to_disk`.
        OSError: no such file.

    Example:
        >>> open_source("candidates.csv")
        Traceback (most recent call last):
        ...
        FileNotFoundError: candidates.csv
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(str(path))
    if path.is_dir():
        if not (path / "dataset_info.json").exists():
            raise InputError(
                f"{path} is a folder without dataset_info.json; one written by Dataset.save_to_disk is needed"
            )
        from rewards.jobs.sources.saved_dataset import SavedDataset

        return SavedDataset(path)
    kind = path.suffix.lower()
    if kind == ".jsonl":
        from rewards.jobs.sources.json_lines import JsonLines

        return JsonLines(path)
    if kind == ".csv":
        from rewards.jobs.sources.comma_separated import CommaSeparated

        return CommaSeparated(path)
    if kind == ".parquet":
        from rewards.jobs.sources.parquet import Parquet

        return Parquet(path)
    raise InputError(f"{path} is neither .jsonl, .csv nor .parquet, nor a dataset folder")
