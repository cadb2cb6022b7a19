"""Flickr8k-Expert and Flickr8k-CrowdFlower (Hodosh et al. 2013), from the files of Flickr8k_text.zip.

- `Flickr8k.token.txt`: `<image>#<0-4> TAB caption`, the five references of each picture.
- `ExpertAnnotations.txt`: `image TAB caption id TAB s1 TAB s2 TAB s3`, judgments from 1 to 4 by three experts.
- `CrowdFlowerAnnotations.txt`: `image TAB caption id TAB share of yes TAB yes TAB no`.

By the protocol of the papers (CLIPScore and after), a caption that is one of the picture's own five is left out: with
it, reference-based metrics would be compared on their own references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rewards.errors import InputError
from rewards.humans.captions.records import JudgedCaption, Reading


def read_flickr8k_expert(annotations: str | Path, captions: str | Path) -> Reading[JudgedCaption]:
    """Three records a line, one for each expert, as the papers flatten them (tau-c).

    Args:
        annotations: ExpertAnnotations.txt.
        captions: Flickr8k.token.txt.

    Raises:
        InputError: a line with another number of columns, an unknown caption or picture, or a judgment outside 1..4.
    """

    def judgments(cells: list[str], where: str) -> list[float]:
        scores = [_number(cell, where) for cell in cells]
        if any(score not in (1, 2, 3, 4) for score in scores):
            raise InputError(f"{where}: judgments are {cells}; whole numbers from 1 to 4 are needed")
        return scores

    return _read(annotations, captions, judgments)


def read_flickr8k_crowdflower(annotations: str | Path, captions: str | Path) -> Reading[JudgedCaption]:
    """One record a line, the share of yes (tau-b).

    Args:
        annotations: CrowdFlowerAnnotations.txt.
        captions: Flickr8k.token.txt.

    Raises:
        InputError: as :func:`read_flickr8k_expert`; also a share that is not yes / (yes + no), or no votes at all.
    """

    def judgments(cells: list[str], where: str) -> list[float]:
        share, yes, no = (_number(cell, where) for cell in cells)
        if yes < 0 or no < 0 or yes + no == 0 or abs(share - yes / (yes + no)) > 1e-3:
            raise InputError(f"{where}: share {cells[0]} does not fit {cells[1]} yes and {cells[2]} no")
        return [yes / (yes + no)]

    return _read(annotations, captions, judgments)


def read_captions(path: str | Path) -> dict[str, str]:
    """Caption by id (`<image>#<number>`).

    Raises:
        InputError: a line without tab or `#`, an empty caption, or an id that occurs twice.
    """
    captions: dict[str, str] = {}
    for number, line in _lines(path):
        id_, tab, caption = line.partition("\t")
        if not tab or "#" not in id_ or not caption.strip():
            raise InputError(f"{path}, line {number}: {line[:80]!r}; '<image>#<number> TAB caption' is needed")
        if id_ in captions:
            raise InputError(f"{path}, line {number}: caption id {id_!r} occurs twice")
        captions[id_] = " ".join(caption.split())
    return captions


def _read(
    annotations: str | Path, captions: str | Path, judgments: Callable[[list[str], str], list[float]]
) -> Reading[JudgedCaption]:
    texts = read_captions(captions)
    references: dict[str, list[str]] = {}
    for id_, caption in texts.items():
        references.setdefault(id_.rpartition("#")[0], []).append(caption)
    records: list[JudgedCaption] = []
    own = 0
    for number, line in _lines(annotations):
        where = f"{annotations}, line {number}"
        cells = line.split("\t")
        if len(cells) != 5:
            raise InputError(f"{where}: has {len(cells)} columns; 5 separated by tabs are needed")
        image, id_ = cells[:2]
        if id_ not in texts:
            raise InputError(f"{where}: caption {id_!r} is not in {captions}")
        if image not in references:
            raise InputError(f"{where}: picture {image!r} has no captions in {captions}")
        scores = judgments(cells[2:], where)
        if texts[id_] in references[image]:
            own += 1
            continue
        records += [JudgedCaption(image, texts[id_], score, tuple(references[image])) for score in scores]
    if not records:
        raise InputError(f"{annotations} holds no judgments")
    return Reading(records, [f"{own} captions left out: among the references of their own picture"] if own else [])


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def _number(cell: str, where: str) -> float:
    try:
        return float(cell)
    except ValueError as error:
        raise InputError(f"{where}: {cell!r} is not a number") from error
