"""A decoder VLM below its language head, as the passes call it: tokens, mask, positions and pictures in, states out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import DynamicCache, ProcessorMixin

from rewards.judges.decoders.rows import Group

ARCHITECTURES = (
    "llava", "llava_next", "idefics3", "smolvlm", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma3",
)  # fmt: skip
"""Model types whose logits by shared prefixes and by whole trees are tested to equal those of independent prompts."""


class TextModel:
    """What differs between the architectures, in one place.

    Args:
        model: A transformers model of one of :data:`ARCHITECTURES`, with `.model` inside it.
        processor: Its processor: tells which ids stand for a picture.

    Attributes:
        device: Where the model is to run.
        holes_allowed: Whether padding may stand between a row's tokens. A sliding window counts every cache slot,
            padding included: with holes it would reach less far back than it should.
        packs: Whether several continuations may stand in one row under a mask of ours.
    """

    def __init__(self, model: Any, processor: ProcessorMixin, device: torch.device) -> None:
        self.model = model
        self.processor = processor
        self.device = device
        parameters = inspect.signature(type(model.model).forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"  # renamed in transformers 5.24
        self._type_ids = next((name for name in ("mm_token_type_ids", "token_type_ids") if name in parameters), None)
        self._rotary_3d = hasattr(model.model, "get_rope_index")
        self.text_config = model.config.get_text_config()
        layers = DynamicCache(config=self.text_config).layers
        self.holes_allowed = not any(getattr(layer, "is_sliding", False) for layer in layers)
        # These towers cut patches by the pictures' sizes in every layer, and would wait for the device each time to
        # read them: they get the sizes on the host. Flash attention takes them on the device.
        attention = getattr(getattr(model.config, "vision_config", None), "_attn_implementation", None)
        self._sizes_stay = model.config.model_type in ("qwen2_vl", "qwen2_5_vl") and attention in ("sdpa", "eager")
        for part in model.modules() if self._sizes_stay else ():
            if type(part).__name__.endswith("VisionRotaryEmbedding"):
                part.register_forward_pre_hook(_to_its_device)
        self.packs = self.holes_allowed and self.text_config._attn_implementation in ("sdpa", "eager")

    def forward(
        self,
        tokens: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        pictures: Mapping[str, torch.Tensor],
        cache: DynamicCache | None = None,
    ) -> torch.Tensor:
        """States `(B, T, D)`.

        Args:
            tokens: `(B, T)` ids.
            mask: `(B, slots)` 1 where a token is; or `(B, 1, T, slots)` from :meth:`mask`.
            positions: `(B, T)`, or `(3, B, T)` for models whose pictures have positions in two dimensions.
            pictures: The vision tower's inputs, and the kinds of the tokens where the model asks for them.
            cache: Keys and values of what stands before; the new ones are added to it.
        """
        if self._rotary_3d:
            self.model.model.rope_deltas = None  # left there by the last picture; it would shift this one
            positions = positions if positions.ndim == 3 else positions.expand(3, -1, -1)
        kept = {"use_cache": False} if cache is None else {"use_cache": True, self._cache_name: cache}
        return self.model.model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, **pictures, **kept
        ).last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 logits of states."""
        return self.model.get_output_embeddings()(hidden).float()

    def mask(self, visible: torch.Tensor) -> torch.Tensor:
        """The attention mask `(B, 1, T, slots)` of what each token sees, `(B, T, slots)` bool."""
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]

    def positions(self, rows: Sequence[Sequence[int]], groups: Sequence[Group]) -> tuple[torch.Tensor, list[int]]:
        """Positions `(B, T)` or `(3, B, T)` of rows that hold pictures, and the position that follows each row.

        They are worked out and stay on the host: on the device it would be waited for once a picture.
        """
        lengths, longest = [len(row) for row in rows], max(map(len, rows))
        if not self._rotary_3d or "image_grid_thw" not in groups[0].inputs:
            return torch.arange(longest).expand(len(rows), -1), lengths
        found, following = torch.zeros(3, len(rows), longest, dtype=torch.long), []
        for at, (row, group) in enumerate(zip(rows, groups)):
            tokens = torch.tensor([list(row)])
            at_row, _ = self.model.model.get_rope_index(
                tokens,
                mm_token_type_ids=torch.tensor(self.processor.create_mm_token_type_ids([list(row)])),
                image_grid_thw=group.inputs["image_grid_thw"].cpu(),
                attention_mask=torch.ones_like(tokens),
            )
            found[:, at, : len(row)] = at_row[:, 0]
            following.append(int(at_row.max()) + 1)
        return found, following

    def pictures(self, rows: Sequence[Sequence[int]], groups: Sequence[Group], longest: int) -> dict[str, torch.Tensor]:
        """The vision tower's inputs of several rows as one batch, where they are."""
        together = {key: _together([group.inputs[key] for group in groups]) for key in groups[0].inputs}
        if self._type_ids:
            kinds = [self.processor.create_mm_token_type_ids([list(row)])[0] for row in rows]
            together[self._type_ids] = torch.tensor([list(row) + [0] * (longest - len(row)) for row in kinds])
        return together

    def moved(self, pictures: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What :meth:`pictures` gave, on the device."""
        return {
            key: value if key == "image_grid_thw" and self._sizes_stay else sent(value, self.device)
            for key, value in pictures.items()
        }


def sent(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """A tensor on its way to the device: the host goes on at once, for which a GPU needs it in pinned memory."""
    if torch.device(device).type == "cuda" and torch.cuda.is_available() and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _to_its_device(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    device = next(module.buffers()).device
    return tuple(value.to(device) if isinstance(value, torch.Tensor) else value for value in args)


def stackable(group: Group) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Groups of equal keys fit into one batch: tiles of one size, however many of them."""
    return tuple((key, tuple(value.shape[2:])) for key, value in sorted(group.inputs.items()))


def _together(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tensors one after the other; the second axis (a picture's tiles) is filled up with zeros, which models skip."""
    if parts[0].ndim > 2 and len({part.shape[1] for part in parts}) > 1:
        most = max(part.shape[1] for part in parts)
        filled = [part.new_zeros(part.shape[0], most, *part.shape[2:]) for part in parts]
        for new, part in zip(filled, parts):
            new[:, : part.shape[1]] = part
        parts = filled
    return torch.cat(list(parts))
