"""FOIL (Shekhar et al. 2017): a COCO caption against the same caption with one wrong word.

From the published `foilv1.0_test_2017.json` (`images` and `annotations` with `id`, `image_id`, `caption`, `foil`) and
COCO's `captions_val2014.json`, whose other captions of the picture are the references: the first of them (1-ref) or all
of them, four as a rule (4-ref).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.humans.captions.records import CaptionPair, Reading
from rewards.runs.files import read_json


def read_foil(foil: str | Path, coco_captions: str | Path, references: int = 4) -> Reading[CaptionPair]:
    """Read the pairs; `a` is the true caption, so that the preference is always 1, and the category is "FOIL".

    Args:
        foil: foilv1.0_test_2017.json.
        coco_captions: captions_val2014.json.
        references: 1 or 4, references kept at most.

    Raises:
        InputError: not JSON, a missing field, an annotation id without exactly one true caption or without a foil, a
            picture that is not listed, or a picture without another caption to serve as reference.
    """
    if references not in (1, 4):
        raise InputError(f"references is {references}; FOIL is defined for 1 and 4")
    content, coco = _load(foil, "images", "annotations"), _load(coco_captions, "annotations")
    of_image: dict[object, list[str]] = {}
    for n, row in enumerate(coco["annotations"]):
        image_id, caption = _fields(row, ("image_id", "caption"), f"{coco_captions}, annotation {n}")
        of_image.setdefault(image_id, []).append(caption)
    names = {}
    for n, row in enumerate(content["images"]):
        image_id, name = _fields(row, ("id", "file_name"), f"{foil}, image {n}")
        names[image_id] = name
    groups: dict[object, dict[bool, list[tuple[object, str]]]] = {}
    for n, row in enumerate(content["annotations"]):
        where = f"{foil}, annotation {n}"
        id_, image_id, caption, is_foil = _fields(row, ("id", "image_id", "caption", "foil"), where)
        if not isinstance(is_foil, bool):
            raise InputError(f"{where}: foil is {is_foil!r}; true or false is needed")
        groups.setdefault(id_, {True: [], False: []})[is_foil].append((image_id, caption))
    records = []
    for id_, group in groups.items():
        where = f"{foil}, annotation id {id_}"
        if len(group[False]) != 1 or not group[True]:
            raise InputError(
                f"{where}: has {len(group[False])} true captions and {len(group[True])} foils; 1 and some are needed"
            )
        image_id, true = group[False][0]
        others = [caption for caption in of_image.get(image_id, []) if caption != true][:references]
        if image_id not in names:
            raise InputError(f"{where}: picture {image_id} is not among the images")
        if not others:
            raise InputError(f"{where}: picture {image_id} has no other caption in {coco_captions}")
        for foil_image, caption in group[True]:
            if foil_image != image_id:
                raise InputError(f"{where}: the foil is of picture {foil_image}, the true caption of {image_id}")
            records.append(CaptionPair(names[image_id], true, caption, 1, "FOIL", tuple(others)))
    if not records:
        raise InputError(f"{foil} holds no pairs")
    return Reading(records, [])


def _load(path: str | Path, *names: str) -> dict[str, list[object]]:
    content = read_json(path)
    lists: dict[str, list[object]] = {}
    for name in names:
        found = content.get(name) if isinstance(content, dict) else None
        if not isinstance(found, list):
            raise InputError(f"{path} has no list {name!r}")
        lists[name] = found
    return lists


def _fields(row: object, names: tuple[str, ...], where: str) -> list[Any]:
    if not isinstance(row, dict) or (missing := [name for name in names if name not in row]):
        raise InputError(
            f"{where}: lacks {', '.join(missing) if isinstance(row, dict) else 'everything: not an object'}"
        )
    if "caption" in names and (not isinstance(row["caption"], str) or not row["caption"].strip()):
        raise InputError(f"{where}: caption is {row['caption']!r}; text is needed")
    return [row[name] for name in names]
