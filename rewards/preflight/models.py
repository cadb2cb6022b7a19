"""Models in full size from their configurations alone: those of a folder, or of the table of published ones.

`published.json` holds what the published `config.json` of each part says (`source` names where), as far as shapes
depend on it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rewards.errors import InputError
from rewards.generation.checkpoints import PRESETS as WRITERS
from rewards.judges.presets import PRESETS as JUDGES
from rewards.runs.files import Json
from rewards.trainers.diffusion.run import PACKAGED

CPU = torch.device("cpu")


@functools.cache
def published() -> dict[str, dict[str, Any]]:
    """The table: name -> configuration."""
    return json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))


def described(name: str) -> dict[str, Any]:
    """The configuration of a model by folder, preset or published name, in the form of the table.

    Raises:
        InputError: It is neither here nor in the table.

    Example:
        >>> described("Qwen/Qwen2.5-VL-3B-Instruct")["model_type"]
        'qwen2_5_vl'
    """
    path = str(PACKAGED.get(name, WRITERS.get(name, JUDGES.get(name, name))))
    folder = Path(path)
    if (folder / "model_index.json").is_file():
        index = _read(folder / "model_index.json")
        parts = {
            part: {"class": entry[1], "config": _read(folder / part / "config.json")}
            for part, entry in index.items()
            if isinstance(entry, list) and (folder / part / "config.json").is_file()
        }
        scheduler = _read(folder / "scheduler" / "scheduler_config.json")
        return {"pipeline": index["_class_name"], "parts": parts, "scheduler": scheduler["_class_name"],
                "scheduler_config": scheduler}  # fmt: skip
    if (folder / "config.json").is_file():
        config = _read(folder / "config.json")
        return {"model_type": config["model_type"], "dtype": config.get("dtype") or "float32", "config": config}
    if path not in published():
        raise InputError(
            f"model {name!r} is no folder here and not among the published configurations that are known "
            f"({', '.join(sorted(published()))}); download it, or name its folder"
        )
    return published()[path]


def build_pipeline(name: str, dtype: torch.dtype) -> Any:
    """A diffusers pipeline without tokenizers; inside :func:`rewards.preflight.pretend.shapes_only`."""
    import diffusers
    import transformers

    known = described(name)
    parts: dict[str, Any] = {}
    for part, entry in known["parts"].items():
        in_diffusers = hasattr(diffusers, entry["class"])
        with _default_dtype(torch.float32 if part == "vae" else dtype):
            if in_diffusers:
                parts[part] = getattr(diffusers, entry["class"]).from_config(entry["config"])
            else:
                cls = getattr(transformers, entry["class"])
                parts[part] = cls(cls.config_class(**entry["config"]))
    pipeline = getattr(diffusers, known["pipeline"])
    parts["scheduler"] = scheduler_of(name)
    empty = [word for word in pipeline.__init__.__annotations__ if word.startswith("tokenizer")]
    if pipeline is diffusers.StableDiffusionPipeline:
        parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    return pipeline(**parts, **dict.fromkeys(empty))


def scheduler_of(name: str) -> Any:
    """A pipeline's scheduler."""
    import diffusers

    known = described(name)
    return getattr(diffusers, known["scheduler"]).from_config(known.get("scheduler_config", {}))


def build_model(name: str, dtype: torch.dtype) -> Any:
    """A model that looks at pictures; inside :func:`rewards.preflight.pretend.shapes_only`."""
    import transformers

    known = described(name)
    kinds = {"blip": "BlipForQuestionAnswering", "vilt": "ViltForQuestionAnswering"}
    config = transformers.AutoConfig.for_model(
        known["model_type"], **{k: v for k, v in known["config"].items() if k not in ("model_type", "dtype")}
    )
    with _default_dtype(dtype):
        if known["model_type"] in kinds:
            model = getattr(transformers, kinds[known["model_type"]])(config)
        else:
            model = transformers.AutoModelForImageTextToText.from_config(config)
    return model.to(dtype)


def dtype_of(name: str | None, default: str) -> torch.dtype:
    """A dtype by its name.

    Raises:
        InputError: There is none of that name.
    """
    found = getattr(torch, default if name in (None, "auto") else str(name), None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"unknown dtype {name!r}: expected one such as 'bfloat16'")
    return found


def _read(path: Path) -> dict[str, Any]:
    loaded: Json = json.loads(path.read_text("utf-8"))
    if not isinstance(loaded, dict):
        raise InputError(f"{path} holds no mapping")
    return loaded


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
