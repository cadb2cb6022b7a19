"""Language models of transformers that write questions: any chat model, and the authors' LLaMA-2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rewards.errors import InputError
from rewards.judges.local import resolve_device, resolve_dtype
from rewards.judges.thoughts import CLOSES, OPENS, WHOLE
from rewards.runs.files import Json
from rewards.tifa.questions.language_model import NEW_TOKENS, Completion, few_shot_prompt, prompt_hash

LLAMA2 = "tifa-benchmark/llama2_tifa_question_generation"
"""The authors' LLaMA-2 (7B), fine-tuned on TIFA v1.0 (TIFA §4.3); it has a prompt format of its own."""

_LLAMA2_PROMPT = (
    "<s>[INST] <<SYS>>\nGiven an image description, generate one or two multiple-choice questions that verifies "
    "if the image description is correct.\nClassify each concept into a type (object, human, animal, food, "
    "activity, attribute, counting, color, material, spatial, location, shape, other), and then generate a question "
    "for each type.\n\n<</SYS>>\n\nDescription: {description} [/INST] Entities:"
)


class ChatModel:
    """A causal language model of transformers, greedy, in batches that do not change its outputs.

    Chat models are given one user turn; models without a chat template continue the plain text.

    Args:
        name: Checkpoint or directory. :data:`LLAMA2` and its copies are recognised by the name and given their own
            format.
        device: Default: this process's GPU, else the CPU.
        dtype: Default: float32 on the CPU, the checkpoint's own elsewhere.
        revision: Branch, tag or commit.
        new_tokens: Longest output in tokens.

    Raises:
        InputError: No such checkpoint.
    """

    def __init__(
        self,
        name: str,
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        new_tokens: int = NEW_TOKENS,
    ) -> None:
        self.device = resolve_device(device)
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(name, revision=revision, padding_side="left")
            model: Any = AutoModelForCausalLM.from_pretrained(
                name, revision=revision, dtype=resolve_dtype(dtype, self.device)
            )
        except (OSError, ValueError) as error:
            raise InputError(f"language model {name!r} cannot be loaded: {str(error).splitlines()[0]}") from error
        self.tokenizer, self.model = tokenizer, model.to(self.device).eval().requires_grad_(False)
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.name = name
        self.revision = getattr(self.model.config, "_commit_hash", None) or revision
        self.new_tokens = new_tokens
        self.llama2_format = "llama2_tifa_question_generation" in name
        controls = {str(token) for token in [*self.tokenizer.get_added_vocab(), *self.tokenizer.all_special_tokens]}
        self._controls = re.compile("|".join(re.escape(t) for t in sorted(controls, key=len, reverse=True)) or "(?!)")

    def identity(self) -> dict[str, Json]:
        """Model, revision, dtype, prompt hash and decoding."""
        return {
            "model": self.name,
            "revision": self.revision,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "prompt_hash": prompt_hash(self.render("")),
            "decoding": "beam 5" if self.llama2_format else "greedy",
        }

    def render(self, description: str) -> str:
        """The whole prompt. Control tokens in the description are data: a blank is put into each."""
        if self.llama2_format:
            return _LLAMA2_PROMPT.format(description=self._plain(description))
        request = f"{few_shot_prompt()}Description: {self._plain(description)}"
        return self._turn(request) if self.tokenizer.chat_template is not None else f"{request}\nElements:"

    def _plain(self, text: str) -> str:
        return self._controls.sub(lambda match: match[0][:1] + " " + match[0][1:], text)

    def _turn(self, request: str) -> str:
        """A request as the user's turn, or as it is for a model without a chat template."""
        if self.tokenizer.chat_template is None:
            return request
        turn = [{"role": "user", "content": request}]
        return str(
            self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True, enable_thinking=False)
        )

    def complete(self, descriptions: Sequence[str]) -> list[Completion]:
        """One output a description.

        Raises:
            InputError: The prompt and an output do not fit into the model's context.
        """
        return self._generate([self.render(description) for description in descriptions], "\nDescription:")

    def write(self, shots: str, inputs: Sequence[str], stop: str) -> list[Completion]:
        """One output an input, as far as `stop`. Control tokens in the inputs are data.

        Raises:
            InputError: As :meth:`complete`; or the authors' LLaMA-2, which writes TIFA's questions only.
        """
        if self.llama2_format:
            raise InputError(f"{self.name!r} was trained to write TIFA's questions only; name a chat model")
        plain = ["\n".join(map(self._plain, text.split("\n"))) for text in inputs]
        return self._generate([self._turn(shots + text) for text in plain], stop)

    @torch.inference_mode()
    def _generate(self, texts: Sequence[str], stop: str) -> list[Completion]:
        if not texts:
            return []
        # A template that writes the first token itself must not be given a second one. The authors' format writes one
        # and was trained with two, so there both stay.
        begins = self.tokenizer.bos_token and texts[0].startswith(self.tokenizer.bos_token) and not self.llama2_format
        inputs = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=not begins).to(self.device)
        inputs.pop("token_type_ids", None)
        length = inputs["input_ids"].shape[1]
        self._check_room(length)
        # The released code decodes the fine-tuned model with five beams, the chat models greedily.
        beams = {"num_beams": 5} if self.llama2_format else {}
        outputs = self.model.generate(
            **inputs, do_sample=False, max_new_tokens=self.new_tokens, pad_token_id=self.tokenizer.pad_token_id,
            stop_strings=[stop], tokenizer=self.tokenizer, **beams,
        )  # fmt: skip
        return [self._completion(tokens, stop) for tokens in outputs[:, length:].tolist()]

    def _completion(self, tokens: list[int], stop: str) -> Completion:
        ends = {self.tokenizer.pad_token_id, self.tokenizer.eos_token_id}
        ends |= _as_set(self.model.generation_config.eos_token_id)
        text = WHOLE.sub("", self.tokenizer.decode(tokens, skip_special_tokens=True))
        if OPENS.search(text) or CLOSES.search(text):
            return Completion(None, error="the model did not come to the end of its thoughts")
        # A row that ended is filled up with padding; one that fills the whole output with text was stopped.
        ended = (tokens[-1:] and tokens[-1] in ends) or stop in text
        return Completion(text, cut_off=len(tokens) >= self.new_tokens and not ended)

    def _check_room(self, length: int) -> None:
        room = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if room and length + self.new_tokens > room:
            raise InputError(
                f"{self.name!r} has room for {room} tokens; the prompt takes {length} and an output up to "
                f"{self.new_tokens}"
            )


def _as_set(value: int | Sequence[int] | None) -> set[int]:
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)
