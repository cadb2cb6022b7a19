"""BLIP as an answerer: each picture is encoded and projected once, and padding changes no answer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import BlipForQuestionAnswering

from rewards.judges.vqa import LONGEST_ANSWER, Asked, VQAJudge


class BlipJudge(VQAJudge):
    """BLIP for question answering: the question is read with the picture, the answer is written or scored.

    `BlipForQuestionAnswering.generate` encodes the picture for every question, gives the decoder an all-ones mask over
    the padded question, and its cross-attention drops even that mask: padding changed half of the answers. Here the
    parts are called one by one, the mask is put back (:func:`restore_cross_mask`), and the keys and values that the
    questions' encoder takes from a picture are projected once a picture (:class:`OncePerPicture`).
    """

    model_class = BlipForQuestionAnswering

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        restore_cross_mask(self.model)
        self._seen = Seen()
        for name, module in self.model.text_encoder.named_modules():
            if name.endswith("crossattention.self"):
                module.key = OncePerPicture(module.key, self._seen)
                module.value = OncePerPicture(module.value, self._seen)

    def _parts(self) -> list[Any]:
        return [self.model.vision_model, self.model.text_encoder, self.model.text_decoder]

    @torch.no_grad()
    def _answer(self, asked: Asked) -> list[str]:
        states, mask = self._read_questions(asked)
        config = self.model.config.text_config
        ids = self.model.text_decoder.generate(
            input_ids=torch.full((len(states), 1), self.model.decoder_start_token_id, device=self.device),
            eos_token_id=config.sep_token_id,
            pad_token_id=config.pad_token_id,
            encoder_hidden_states=states,
            encoder_attention_mask=mask,
            max_new_tokens=LONGEST_ANSWER,
            do_sample=False,
        )
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    @torch.no_grad()
    def _choose(self, asked: Asked) -> list[torch.Tensor]:
        counts = [len(offered) for offered in asked.choices]
        if not sum(counts):
            return [torch.empty(0) for _ in counts]
        states, mask = self._read_questions(asked)
        owner = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)], device=self.device)
        texts = [text for offered in asked.choices for text in offered]
        longest = self.model.config.text_config.max_position_embeddings
        encoded = self.tokenizer(
            texts, padding=True, truncation=True, max_length=longest, padding_side="right", return_tensors="pt"
        ).to(self.device)
        # An answer runs from the start token to [SEP]: the tokenizer's [CLS] is replaced as in the model's training.
        ids, valid = encoded["input_ids"], encoded["attention_mask"]
        ids[:, 0] = self.model.decoder_start_token_id
        logits = self.model.text_decoder(
            input_ids=ids,
            attention_mask=valid,
            encoder_hidden_states=states[owner],
            encoder_attention_mask=mask[owner],
        ).logits
        log_probs = logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return list((log_probs * valid[:, 1:]).sum(1).split(counts))

    def _read_questions(self, asked: Asked) -> tuple[torch.Tensor, torch.Tensor]:
        """The questions read with their pictures: states `(Q, T, D)` and mask `(Q, T)`."""
        seen = self.model.vision_model(pixel_values=asked.pixels["pixel_values"]).last_hidden_state
        encoded = self.tokenizer(
            asked.questions,
            padding=True,
            truncation=True,
            max_length=self.model.config.text_config.max_position_embeddings,
            padding_side="right",
            return_tensors="pt",
        ).to(self.device)
        self._seen.states, self._seen.owner = seen, asked.owner
        try:
            states = self.model.text_encoder(
                input_ids=encoded["input_ids"],
                attention_mask=encoded["attention_mask"],
                encoder_hidden_states=seen[:1].expand(len(asked.questions), -1, -1),  # its shape; see OncePerPicture
            ).last_hidden_state
        finally:
            self._seen.states = self._seen.owner = None
        return states, encoded["attention_mask"]


class Seen:
    """The pictures of the batch at work: states `(P, T, D)`, and which of them each of Q rows is about."""

    states: torch.Tensor | None = None
    owner: torch.Tensor | None = None


class OncePerPicture(nn.Module):
    """A projection of picture states that is computed once a picture and handed to every question about it.

    Six questions about one picture of 577 patches otherwise project the same states six times in every layer.
    """

    def __init__(self, projection: nn.Module, seen: Seen) -> None:
        super().__init__()
        self.projection = projection
        self.seen = seen

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.seen.states is None or self.seen.owner is None:
            return self.projection(states)
        projected = self.projection(self.seen.states)
        if len(projected) == 1:
            return projected.expand(len(self.seen.owner), -1, -1)
        return projected[self.seen.owner]


def restore_cross_mask(model: Any) -> None:
    """Give BLIP's cross-attention the mask that transformers 5.24 loses on the way.

    `BlipTextLayer` hands the mask over as `attention_mask`, and `BlipTextSelfAttention` overwrites it with None unless
    it comes as `encoder_attention_mask`. The hook passes it under both names.
    """

    def pass_mask(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if kwargs.get("encoder_attention_mask") is None:
            kwargs["encoder_attention_mask"] = kwargs.get("attention_mask")
        return args, kwargs

    for name, module in model.text_decoder.named_modules():
        if name.endswith("crossattention.self"):
            module.register_forward_pre_hook(pass_mask, with_kwargs=True)
