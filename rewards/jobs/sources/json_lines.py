"""JSON lines: an object a line."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Sequence

from rewards.jobs.sources.base import Entry, Row, Source, content_fingerprint


class JsonLines(Source):
    """Positions are byte offsets, lines count from 1. Blank lines are not rows."""

    def entries(self, column: str | None) -> Iterator[Entry]:
        """See :meth:`Source.entries`."""
        for position, line, content in self._lines():
            if column is None:
                yield Entry(position, line, None, None)
                continue
            try:
                yield Entry(position, line, _object(content).get(column), None)
            except ValueError as error:
                yield Entry(position, line, None, str(error))

    def read(self, positions: Sequence[int]) -> list[Row]:
        """See :meth:`Source.read`."""
        rows = []
        with self.path.open("rb") as file:
            for position in positions:
                file.seek(position)
                rows.append(_object(file.readline()))
        return rows

    def columns(self, wanted: Sequence[Collection[str]] = ()) -> list[str]:
        """See :meth:`Source.columns`."""
        found: dict[str, None] = {}
        for _, _, content in self._lines():
            try:
                found |= dict.fromkeys(_object(content))
            except ValueError:
                continue
            if wanted and all(any(name in found for name in group) for group in wanted):
                break
        return list(found)

    def fingerprint(self) -> str:
        """See :meth:`Source.fingerprint`."""
        return content_fingerprint(self.path)

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        position = 0
        with self.path.open("rb") as file:
            for line, content in enumerate(file, start=1):
                if content.removeprefix(BOM_UTF8).strip():
                    yield position, line, content
                position += len(content)


def _object(content: bytes) -> Row:
    try:
        row = json.loads(content.removeprefix(BOM_UTF8).decode("utf-8"))  # bytes would pass through half characters
        if b"\\ud" in content or b"\\uD" in content:
            json.dumps(row, ensure_ascii=False).encode()  # half a character, which no file can hold, fails here
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"is {type(row).__name__}; an object is needed")
    return row
