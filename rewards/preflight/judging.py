"""A judge on shapes: its weights, a batch at its largest, and what its tokenizer says where there is one."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rewards.build import ORACLE, RewardSettings
from rewards.errors import RewardsError
from rewards.harmonic.criteria import CRITERIA, builtin_prompt
from rewards.judges.answerers.vqa import ROWS_A_BATCH
from rewards.judges.decoders.engine import ROW_TOKENS_ELSEWHERE
from rewards.judges.decoders.rating_tokens import find_rating_tokens
from rewards.judges.decoders.vlm import TOKEN_BUDGET
from rewards.judges.presets import PRESETS
from rewards.preflight.layers import Known, Numbers, by_layers, shortened
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, TILED, build_model, config_of, described, dtype_of
from rewards.preflight.pretend import DEVICE, pretended, shapes_only
from rewards.preflight.report import Estimate

CHARACTERS_A_TOKEN = 4.3
"""Of English prompts, in the vocabularies of Llama and Qwen: about this many (benchmarks/judges_results.md)."""

PICTURE = (640, 480)
"""Size of the picture for which tokens are counted, where a model keeps proportions."""

PACKAGES = {"qwen2_vl": "torchvision", "qwen2_5_vl": "torchvision", "qwen3_vl": "torchvision", "smolvlm": "num2words"}
"""What a processor needs beyond the package's own dependencies."""


class Shown(NamedTuple):
    """What a vision tower takes for some pictures, and how many tokens each becomes."""

    inputs: dict[str, torch.Tensor]
    tokens: int


def shown(known: Known, config: Any, pictures: int, dtype: torch.dtype) -> Shown:
    """The inputs of a decoder VLM's tower for pictures of :data:`PICTURE`, without its processor."""
    vision = config.vision_config
    if hasattr(vision, "spatial_merge_size"):
        patch, merge = vision.patch_size, vision.spatial_merge_size
        height, width = (round(side / patch / merge) * merge for side in reversed(PICTURE))
        grid = torch.tensor([[1, height, width]] * pictures)
        with shapes_only():
            depth = 3 * vision.temporal_patch_size * patch**2
            pixels = torch.zeros(pictures * height * width, depth, dtype=dtype)
        return Shown({"pixel_values": pixels, "image_grid_thw": grid}, height * width // merge**2)
    side, patch = vision.image_size, vision.patch_size
    tiles = int(known["tiles"]) if known["model_type"] in TILED else 1
    shape = (pictures * tiles, *([1] if known["model_type"] in TILED else []), 3, side, side)  # a part alone in its row
    with shapes_only():
        pixels = torch.ones(shape, dtype=dtype)  # zeros are padding
    return Shown({"pixel_values": pixels}, tiles * (side // patch // getattr(config, "scale_factor", 1)) ** 2)


def rows_of(model: Any, known: Known, rows: int, text: int, dtype: torch.dtype) -> dict[str, Any]:
    """Inputs of a decoder VLM: `rows` pictures, each with `text` tokens after it."""
    seen = shown(known, model.config, rows, dtype)
    image = model.config.image_token_id
    other = 0 if image != 0 else 1
    ids = torch.tensor([[image] * seen.tokens + [other] * text] * rows)
    inputs = {"input_ids": ids, **seen.inputs}
    if "image_grid_thw" in seen.inputs:
        inputs["position_ids"] = torch.arange(ids.shape[1]).expand(3, rows, -1)
    return inputs


def estimate_judge(settings: RewardSettings, facts: list[str], missing: list[str]) -> list[Estimate]:
    """The phases of the judge that settings name; what a person should know goes to `facts` and `missing`.

    Args:
        settings: Of a reward; parts of a combined one are added up.
    """
    if settings.kind == "combined":
        every = [phase for part in settings.rewards for phase in estimate_judge(part, facts, missing)]
        return every[:1] and [
            Estimate.of("weights", sum(one.bytes for one in every if one.name == "weights"), "all judges"),
            *(one for one in every if one.name != "weights"),
        ]
    _questions(settings, missing)
    name = settings.judge
    if name is None or name == ORACLE or "base_url" in settings.judge_options or name.startswith("http"):
        return []
    known = described(name)
    package = PACKAGES.get(known["model_type"])
    if package is not None and importlib.util.find_spec(package) is None:
        missing.append(f"package {package}, without which the processor of {name} does not load")
    dtype = dtype_of(settings.dtype, str(known["dtype"]))
    if known["model_type"] in ("blip", "vilt"):
        note, work = f"{ROWS_A_BATCH} questions, four choices each", partial(_answerer, dtype=dtype)
    else:
        rows, row, text = _trees(name, known, settings, facts)
        note = f"{rows} pictures x {row} tokens"
        work = partial(_decoder, known=known, rows=rows, text=text, dtype=dtype)

    def measured(part: Known) -> Numbers:
        with pretended(CPU), Measure() as measure:
            model = build_model(part, dtype).eval()
            weights = measure.live
            with measure.phase() as batch, torch.no_grad():
                work(model)
        return {"weights": weights, "batch": batch.peak, "FLOPs": batch.flops}

    of = by_layers(known, measured)
    return [
        Estimate.of("weights", of["weights"], f"{name}, {str(dtype).removeprefix('torch.')}"),
        Estimate.of("a batch", of["batch"], note, of["FLOPs"]),
    ]


def reads_of_a_forward(known: Known) -> Counter[str]:
    """How often the host waits for a GPU in a forward of a decoder VLM, by the line that asks.

    Raises:
        RuntimeError: Tensors of different devices meet.
    """
    with pretended() as reads, torch.no_grad():
        with DEVICE:
            model = build_model(shortened(known), torch.float32).eval()
        with DEVICE:
            inputs = rows_of(model, known, 2, 8, torch.float32)
        reads.inside.clear()
        model.model(**inputs, use_cache=False)
        return Counter(reads.inside)


def _trees(name: str, known: Known, settings: RewardSettings, facts: list[str]) -> tuple[int, int, int]:
    """Rows of the largest batch, tokens of a row (a whole tree), and those of them that are text."""
    config = config_of(known)
    with pretended(CPU):
        picture = shown(known, config, 1, torch.float32).tokens
    criteria = settings.criteria or CRITERIA
    prompts = list((settings.prompts or {one: builtin_prompt(settings.task, one) for one in criteria}).values())
    tokenizer = _tokenizer(name)
    if tokenizer is None:
        lengths, how = [round(len(prompt) / CHARACTERS_A_TOKEN) for prompt in prompts], "about "
    else:
        lengths, how = [len(tokenizer(prompt)["input_ids"]) for prompt in prompts], ""
        _rating(tokenizer, name, facts)
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    facts.append(
        f"{name}: a prompt has {how}{picture + max(lengths)} tokens ({picture} of them a picture of {PICTURE[0]} x "
        f"{PICTURE[1]}) beside the text that is judged; the context has {context}"
    )
    row = min(picture + sum(lengths), ROW_TOKENS_ELSEWHERE)
    rows = max(1, int(settings.judge_options.get("token_budget", TOKEN_BUDGET)) // row)
    return rows, row, max(1, row - picture)


def _decoder(model: Any, known: Known, rows: int, text: int, dtype: torch.dtype) -> None:
    """A batch of whole trees as large as the token budget."""
    inputs = rows_of(model, known, rows, text, dtype)
    row = inputs["input_ids"].shape[1]
    with shapes_only():
        mask = torch.zeros(rows, 1, row, row, dtype=dtype)
    hidden = model.model(**inputs, attention_mask=mask, use_cache=False).last_hidden_state
    model.get_output_embeddings()(hidden.flatten(0, 1)[:256]).float().log_softmax(-1)


def _answerer(model: Any, dtype: torch.dtype) -> None:
    """A batch of an answerer's rows: six questions a picture, four choices a question."""
    pictures, words = ROWS_A_BATCH // 6, 16
    config = model.config
    if config.model_type == "vilt":
        with shapes_only():
            states = torch.zeros(ROWS_A_BATCH, words + (config.image_size // config.patch_size) ** 2 + 1,
                                 config.hidden_size, dtype=dtype)  # fmt: skip
        model.vilt.encoder(states)  # its embeddings choose patches by their values
        return
    side = config.vision_config.image_size
    with shapes_only():
        pixels = torch.zeros(pictures, 3, side, side, dtype=dtype)
    seen = model.vision_model(pixel_values=pixels).last_hidden_state
    together = torch.ones(pictures, min(words * 6, config.text_config.max_position_embeddings), dtype=torch.long)
    model.text_encoder(input_ids=together, encoder_hidden_states=seen)
    with shapes_only():
        read = torch.zeros(ROWS_A_BATCH * 4, words, config.text_config.hidden_size, dtype=dtype)
    choices = torch.ones(len(read), 4, dtype=torch.long)
    model.text_decoder(input_ids=choices, encoder_hidden_states=read).logits.float().log_softmax(-1)


def _tokenizer(name: str) -> Any:
    """The judge's tokenizer where it lies here; nothing is downloaded."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(PRESETS.get(name, name), local_files_only=True)
    except (OSError, ValueError):
        return None


def _rating(tokenizer: Any, name: str, facts: list[str]) -> None:
    try:
        found = find_rating_tokens(tokenizer, "", ("1", "2", "3", "4", "5"))
    except RewardsError as error:
        facts.append(f"{name}: {error}")
    else:
        facts.append(f"{name}: ratings are tokens {[list(one) for one in found.variants]}")


def _questions(settings: RewardSettings, missing: list[str]) -> None:
    if settings.kind != "tifa" or settings.questions is None:
        return
    if not Path(settings.questions).is_file():
        missing.append(f"questions: {settings.questions} is not there (rewards questions makes it)")
        return
    if settings.questions.endswith((".sqlite", ".db")):
        try:
            with sqlite3.connect(f"file:{settings.questions}?mode=ro", uri=True) as database:
                database.execute("SELECT 1 FROM questions LIMIT 1")
        except sqlite3.Error as error:
            missing.append(f"questions: {settings.questions} cannot be read: {error}")
