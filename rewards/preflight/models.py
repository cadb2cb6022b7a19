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
from rewards.preflight.layers import Known
from rewards.preflight.pretend import shapes_only
from rewards.runs.files import Json
from rewards.trainers.diffusion.run import PACKAGED

CPU = torch.device("cpu")

TILED = ("idefics3", "smolvlm")
"""Kinds of models that see a picture in parts."""


@functools.cache
def published() -> dict[str, dict[str, Any]]:
    """The table: name -> configuration."""
    return json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))


def described(name: str) -> Known:
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
        found = {"model_type": config["model_type"], "dtype": config.get("dtype") or "float32", "config": config}
        return found | ({"tiles": _tiles(folder)} if config["model_type"] in TILED else {})
    if path not in published():
        raise InputError(
            f"model {name!r} is no folder here and not among the published configurations that are known "
            f"({', '.join(sorted(published()))}); download it, or name its folder"
        )
    return published()[path]


def build_pipeline(known: Known, dtype: torch.dtype) -> Any:
    """A diffusers pipeline without tokenizers, its parts of shapes; inside :func:`rewards.preflight.pretend.pretended`.

    Args:
        known: As :func:`described` gives it.
        dtype: Of all parts but the autoencoder.
    """
    import diffusers
    import transformers

    parts: dict[str, Any] = {"scheduler": scheduler_of(known)}
    for part, entry in known["parts"].items():
        in_diffusers = hasattr(diffusers, entry["class"])
        with shapes_only(), _default_dtype(torch.float32 if part == "vae" else dtype):
            if in_diffusers:
                parts[part] = getattr(diffusers, entry["class"]).from_config(entry["config"])
            else:
                cls = getattr(transformers, entry["class"])
                parts[part] = cls(cls.config_class(**entry["config"]))
    pipeline = getattr(diffusers, known["pipeline"])
    empty = [word for word in pipeline.__init__.__annotations__ if word.startswith("tokenizer")]
    if pipeline is diffusers.StableDiffusionPipeline:
        parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    return pipeline(**parts, **dict.fromkeys(empty))


def scheduler_of(known: Known) -> Any:
    """A pipeline's scheduler, with its values."""
    import diffusers

    return getattr(diffusers, known["scheduler"]).from_config(known.get("scheduler_config", {}))


def config_of(known: Known) -> Any:
    """The configuration of a model that looks at pictures, as transformers has it."""
    from transformers import AutoConfig

    settings = {key: value for key, value in known["config"].items() if key not in ("model_type", "dtype")}
    return AutoConfig.for_model(known["model_type"], **settings)


def build_model(known: Known, dtype: torch.dtype) -> Any:
    """A model that looks at pictures, of shapes; inside :func:`rewards.preflight.pretend.pretended`."""
    import transformers

    kinds = {"blip": "BlipForQuestionAnswering", "vilt": "ViltForQuestionAnswering"}
    config = config_of(known)
    with shapes_only(), _default_dtype(dtype):
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


def _tiles(folder: Path) -> int:
    """Parts that a square picture is cut into, the whole picture among them."""
    files = [folder / name for name in ("processor_config.json", "preprocessor_config.json")]
    settings = next((_read(file) for file in files if file.is_file()), {})
    settings = settings.get("image_processor", settings)
    if not settings.get("do_image_splitting", True):
        return 1
    sides = [settings.get(name, {}).get("longest_edge", 1) for name in ("size", "max_image_size")]
    return (sides[0] // sides[1]) ** 2 + 1


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
