"""Folders written by `Dataset.save_to_disk` of Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import datasets

from rewards.errors import InputError
from rewards.jobs.sources.base import Entry, Row, Source, ends_fingerprint


class SavedDataset(Source):
    """Positions are row numbers from 0, lines count from 1. Pictures stay encoded (`{"bytes", "path"}`).

    Raises:
        InputError: the folder holds several splits.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            dataset = datasets.load_from_disk(str(path))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is no whole dataset of Dataset.save_to_disk: {error!r}") from error
        if not isinstance(dataset, datasets.Dataset):
            raise InputError(f"{path} holds splits ({', '.join(dataset)}); give the folder of one of them")
        self._dataset = dataset.with_format("arrow")

    def entries(self, column: str | None) -> Iterator[Entry]:
        """See :meth:`Source.entries`."""
        if column not in self.columns():
            for position in range(len(self._dataset)):
                yield Entry(position, position + 1, None, None)
            return
        position = 0
        for table in self._dataset.select_columns([column]).iter(batch_size=4096):
            for row in table.to_pylist():
                yield Entry(position, position + 1, row[column], None)
                position += 1

    def read(self, positions: Sequence[int]) -> list[Row]:
        """See :meth:`Source.read`."""
        return list(self._dataset[list(positions)].to_pylist())

    def columns(self, wanted: Sequence[Collection[str]] = ()) -> list[str]:
        """See :meth:`Source.columns`."""
        return list(self._dataset.column_names)

    def fingerprint(self) -> str:
        """See :meth:`Source.fingerprint`."""
        return ends_fingerprint(sorted(self.path.glob("*.arrow")))
