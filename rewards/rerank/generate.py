"""Candidates from a vision-language model or a diffusers pipeline, each reproducible by its own seed.

The noise of a candidate comes from its seed alone, not from the batch that it was sampled in: a text by the Gumbel-max
trick (the largest of logits / T plus Gumbel noise is a sample of the softmax), a picture by a generator of its own.
Seeds are derived from the run's seed, the prompt's id and the candidate's number, and recorded beside the candidate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.jobs.sources import Source, open_source
from rewards.rerank.generate_settings import SHAPES, GenerateSettings, Sampler
from rewards.runs.files import finite_or_none, write_json, write_lines, write_whole
from rewards.runs.identity import as_json, check_same

WEIGHTS = Path(__file__).resolve().parents[1] / "shapes" / "weights"
PRESETS = {"shapes-captioner": WEIGHTS / "captioner", "shapes-generator": WEIGHTS / "stable_diffusion"}


def generate(settings: GenerateSettings, folder: str | Path, on_shard: Callable[[], object] | None = None) -> Path:
    """Sample n candidates for every prompt, resumable.

    Args:
        settings: what is sampled.
        folder: gets `candidates.jsonl` (inline rows for `rewards rerank`, with `seeds`), pictures, and the shards.
        on_shard: called after each committed shard.

    Returns:
        The path of `candidates.jsonl`.

    Raises:
        InputError: an unknown model, prompts without pictures, or a folder of a run with other settings.
    """
    folder = Path(folder).absolute()
    if settings.prompts != SHAPES:
        open_source(settings.prompts)
    # A run that never started must not stand in the way of the next one with another model.
    sampler: Sampler | None = None if (folder / "manifest.json").exists() else _sampler(settings)
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    source = _prompts(settings, folder)
    scanned = list(islice(source.scan("id", required=False), settings.limit))
    lines: dict[str | None, int] = {}
    for row in scanned:
        if row.problem is not None:
            raise InputError(f"{source.path}, line {row.line}: {row.problem}")
        if row.key is not None and lines.setdefault(row.key, row.line) != row.line:
            # Their candidates would have the same seeds and lie in the same files.
            raise InputError(f"{source.path}, line {row.line}: id {row.key!r} is also on line {lines[row.key]}")
    _check_manifest(settings, folder, source)
    paths = []
    for start in range(0, len(scanned), settings.shard_size):
        path = folder / "shards" / f"{start // settings.shard_size:06d}.jsonl"
        paths.append(path)
        if path.exists():
            continue
        sampler = sampler or _sampler(settings)
        chosen = scanned[start : start + settings.shard_size]
        rows = source.read([row.position for row in chosen])
        ids = [row.key if row.key is not None else f"line-{row.line}" for row in chosen]
        made = _shard(settings, folder, source.path.parent, list(zip(ids, rows, strict=True)), sampler)
        write_lines(path, map(_plain, made))
        if on_shard is not None:
            on_shard()
    target = folder / "candidates.jsonl"
    write_whole(target, (path.read_bytes() for path in paths))
    return target


def candidate_seed(seed: int, id: str, number: int) -> int:
    """The seed of one candidate, below 2^63.

    Example:
        >>> candidate_seed(0, "a", 1) == candidate_seed(0, "a", 1) != candidate_seed(0, "a", 2)
        True
    """
    digest = hashlib.blake2b(f"{seed}/{number}/{id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _shard(
    settings: GenerateSettings, folder: Path, base: Path, rows: Sequence[tuple[str, dict[str, Any]]], sampler: Sampler
) -> Iterator[dict[str, Any]]:
    flat: list[dict[str, Any]] = []
    seeds: list[int] = []
    prepared = []
    for id, row in rows:
        prepared.append({**row, "id": id, **_inputs(settings, folder, base, id, row)})
        flat += [prepared[-1]] * settings.n
        seeds += [candidate_seed(settings.seed, id, k) for k in range(settings.n)]
    outputs: list[Any] = []
    for start in range(0, len(flat), settings.batch_size):
        stop = start + settings.batch_size
        outputs += sampler(flat[start:stop], seeds[start:stop])
    for place, row in enumerate(prepared):
        of_row = slice(place * settings.n, (place + 1) * settings.n)
        candidates = outputs[of_row]
        if settings.kind == "pictures":
            candidates = [_saved(folder, row["id"], k, picture) for k, picture in enumerate(candidates)]
        yield {**row, "candidates": candidates, "seeds": seeds[of_row]}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON has it; what it lacks (dates of a table, NaN) becomes text or null."""
    return dict(finite_or_none(json.loads(json.dumps(row, default=str))))


def _inputs(settings: GenerateSettings, folder: Path, base: Path, id: str, row: dict[str, Any]) -> dict[str, Any]:
    """Checked inputs of one prompt; an encoded picture is written beside the candidates."""
    if settings.kind == "pictures":
        if not isinstance(row.get("prompt"), str) or not row["prompt"].strip():
            raise InputError(f"prompt {id!r} has no text to draw")
        return {}
    image = row.get("image")
    if isinstance(image, str):
        path = base / image
    elif isinstance(image, dict):
        path = folder / "images" / f"{_file_name(id)}.png"
        path.parent.mkdir(exist_ok=True)
        from rewards.images import to_pil

        to_pil(image).save(path)
    else:
        raise InputError(f"prompt {id!r} has no picture to write about")
    if not path.is_file():
        raise InputError(f"prompt {id!r} lacks its picture: no file {str(path)!r}")
    return {"image": str(path)}


def _saved(folder: Path, id: str, number: int, picture: Any) -> str:
    path = folder / "pictures" / _file_name(id) / f"{number:03d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
    return str(path)


def _file_name(id: str) -> str:
    """A safe and short name for a folder or file, readable where the id is."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in id)[:40]
    return f"{plain}-{hashlib.blake2b(id.encode(), digest_size=4).hexdigest()}"


def _prompts(settings: GenerateSettings, folder: Path) -> Source:
    if settings.prompts != SHAPES:
        return open_source(Path(settings.prompts).absolute())
    path = folder / "prompts.jsonl"
    if not path.exists():
        from rewards.rerank.shapes_prompts import write_shapes_prompts

        write_shapes_prompts(path, settings.kind, settings.limit or 64, settings.seed)
    return open_source(path)


def _check_manifest(settings: GenerateSettings, folder: Path, source: Source) -> None:
    described = {k: v for k, v in asdict(settings).items() if k not in ("device", "batch_size", "prompts")}
    manifest = {"settings": described, "prompts": source.fingerprint()}
    path = folder / "manifest.json"
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} was not written by a run of best-of-n; give another folder") from error
        check_same(known, as_json(manifest), f"what is in {folder}")
    else:
        write_json(path, as_json(manifest))


def _sampler(settings: GenerateSettings) -> Sampler:
    if settings.kind == "pictures":
        from rewards.rerank.sample_pictures import picture_sampler

        return picture_sampler(settings, _checkpoint(settings.model))
    from rewards.rerank.sample_texts import text_sampler

    return text_sampler(settings, _checkpoint(settings.model))


def _checkpoint(model: str | None) -> str:
    assert model is not None  # the settings have one
    if model in PRESETS and not PRESETS[model].is_dir():
        raise InputError(f"the packaged weights of {model!r} are missing: no directory {PRESETS[model]}")
    return str(PRESETS.get(model, model))
