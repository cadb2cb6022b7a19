"""From pictures and a rendered prompt to model inputs: the processor sees each picture once, not once a prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.pictures import straight_through, takes_tensors
from rewards.judges.prompting import Prompting, added_tokens

_TEXT_KEYS = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids", "text_replacement_offsets")
_PROBE = "a"


class Looked(NamedTuple):
    """What the processor made of a row's pictures.

    Attributes:
        inputs: Everything for the vision tower, as a batch of one row, floating numbers in the model's dtype. It stays
            where the processor made it until its batch goes to the device.
        replacements: The text that stands for each picture once it is expanded to its number of tokens.
    """

    inputs: dict[str, torch.Tensor]
    replacements: list[str]


class Encoder:
    """The processor of a judge, asked once a picture.

    Args:
        processor: A transformers processor.
        prompting: Its prompts.
        device: Where the inputs go.
        dtype: Of the pixel values.
    """

    def __init__(self, processor: Any, prompting: Prompting, device: torch.device, dtype: torch.dtype) -> None:
        self.processor = processor
        self.prompting = prompting
        self.tokenizer = processor.tokenizer
        self.device = device
        self.dtype = dtype
        added = sorted((re.escape(token) for token in added_tokens(self.tokenizer)), key=len, reverse=True)
        self._runs = re.compile(rf"({'|'.join(added)})\1*") if added else re.compile(r"(?!)")
        self.takes_tensors = takes_tensors(processor)

    def full_inputs(self, pictures: Sequence[Picture], prompt: str, **options: Any) -> Any:
        """The processor's own inputs for one row of pictures and one text.

        Raises:
            InputError: The processor refuses the pictures, or found control tokens that the prompt should not have.
        """
        text = self.prompting.render(prompt, len(pictures))
        exact = self._processed([one.pixels for one in pictures], text, options)
        sources = [one.source for one in pictures]
        if all(source is None for source in sources):
            return exact
        return straight_through(exact, self._processed(sources, text, options))

    def _processed(self, pictures: Sequence[object], text: str, options: Mapping[str, Any]) -> Any:
        on_device = {"device": self.device} if any(isinstance(one, torch.Tensor) for one in pictures) else {}
        try:
            return self.processor(
                images=[pictures],
                text=[text],
                return_tensors="pt",
                add_special_tokens=not self.prompting.begins_with_bos,
                **on_device,
                **options,
            )
        except ValueError as error:  # a picture of extreme proportions, for example
            raise InputError(f"the judge's processor refuses the input: {' '.join(str(error).split())}") from error

    def look(self, pictures: Sequence[Picture]) -> Looked:
        """Preprocess a row's pictures, once for all of its prompts.

        Raises:
            InputError: As :meth:`full_inputs`.
            NotImplementedError: The processor does not say how it expands pictures into tokens, or :meth:`ids` would
                not give what the processor gives; such rows need :meth:`full_inputs`.
        """
        try:
            inputs = self.full_inputs(pictures, _PROBE, return_text_replacement_offsets=True)
            replacements = [entry["replacement"] for entry in inputs["text_replacement_offsets"][0]]
        except (KeyError, TypeError) as error:
            raise NotImplementedError(f"no text replacements from {type(self.processor).__name__}") from error
        seen = {key: self._cast(value) for key, value in _tensors(inputs).items() if key not in _TEXT_KEYS}
        looked = Looked(seen, replacements)
        if self.ids(looked, _PROBE) != inputs["input_ids"][0].tolist():
            raise NotImplementedError(f"{type(self.processor).__name__} encodes text in a way of its own")
        return looked

    def ids(self, looked: Looked, prompt: str) -> list[int]:
        """Token ids of a prompt about pictures that were looked at, equal to those of :meth:`full_inputs`."""
        text = self.prompting.render(prompt, len(looked.replacements))
        if looked.replacements:
            parts = text.split(self.processor.image_token)
            if len(parts) != len(looked.replacements) + 1:
                raise NotImplementedError("the chat template writes pictures in a way of its own")
            text = parts[0] + "".join(new + part for new, part in zip(looked.replacements, parts[1:]))
        # Hundreds of equal image tokens in a row are tokenized as one and repeated afterwards.
        counts: dict[str, list[int]] = {}
        for match in self._runs.finditer(text):
            counts.setdefault(match[1], []).append(len(match[0]) // len(match[1]))
        repeated = {token: iter(found) for token, found in counts.items() if max(found) > 1}
        short = self._runs.sub(lambda match: match[1] if match[1] in repeated else match[0], text)
        ids = self.tokenizer(short, add_special_tokens=not self.prompting.begins_with_bos)["input_ids"]
        by_id = {self.tokenizer.convert_tokens_to_ids(token): found for token, found in repeated.items()}
        return [token for token in ids for _ in range(next(by_id[token]) if token in by_id else 1)]

    def to_device(self, inputs: Mapping[str, object]) -> dict[str, torch.Tensor]:
        """The tensors among `inputs` on the device, floating ones in the model's dtype."""
        return {key: self._cast(value).to(self.device) for key, value in _tensors(inputs).items()}

    def _cast(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype) if value.is_floating_point() else value


def _tensors(inputs: Mapping[str, object]) -> dict[str, torch.Tensor]:
    return {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}
