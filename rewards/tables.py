"""Tables for people: one look for every table that is printed or put on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Table:
    """A table with a heading.

    Attributes:
        title: Heading.
        header: Column names.
        rows: Cells; the first of a row names it. A name that begins with a blank is a part of the row above.
        note: A sentence below the heading.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def text(self) -> str:
        """For a terminal, with the heading above."""
        return "\n".join(part for part in (self.title, text_table(self.header, self.rows), self.note) if part)

    def html(self) -> str:
        """For the report, without the heading."""
        header = "".join(f"<th>{escape(cell)}</th>" for cell in self.header)
        rows = ""
        for name, *cells in self.rows:
            values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            kind = "sub" if name[:1].isspace() else "name"
            rows += f'<tr><td class="{kind}">{escape(name.strip())}</td>{values}</tr>'
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f'{note}<div class="table"><table><tr>{header}</tr>{rows}</table></div>'


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, the first to the left and the others to the right.

    Example:
        >>> print(text_table(["metric", "tau-b"], [["BLEU", "18.79"], ["METEOR", "27.41"]]))
        metric  tau-b
        ------  -----
        BLEU    18.79
        METEOR  27.41
    """
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *(line(row) for row in rows)])
