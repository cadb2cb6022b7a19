"""BLIP as an answerer: each picture is encoded and projected once, and padding changes no answer."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn
from transformers import BlipForQuestionAnswering

from rewards.judges.answerers.vqa import LONGEST_ANSWER, Asked, VQAJudge
from rewards.judges.local import LocalOptions


class BlipJudge(VQAJudge):
    """BLIP for question answering: the question is read with the picture, the answer is written or scored.

    `BlipForQuestionAnswering.generate` encodes the picture for every question, gives the decoder an all-ones mask over
    the padded question, and its cross-attention drops even that mask: padding changed half of the answers. Here the
    parts are called one by one, the mask is put back (:func:`restore_cross_mask`), and the keys and values that the
    questions' encoder takes from a picture are projected once a picture (:class:`CrossOncePerPicture`).
    """

    model_class = BlipForQuestionAnswering

    def __init__(self, path: str, **options: Unpack[LocalOptions]) -> None:
        super().__init__(path, **options)
        restore_cross_mask(self.model)
        self._seen = Seen()
        for name, module in list(self.model.text_encoder.named_modules()):
            if name.endswith("crossattention"):
                module.self = CrossOncePerPicture(module.self, self._seen)

    def _parts(self) -> list[nn.Module]:
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
        self._seen.states, self._seen.counts = seen, asked.counts
        try:
            states = self.model.text_encoder(
                input_ids=encoded["input_ids"],
                attention_mask=encoded["attention_mask"],
                encoder_hidden_states=seen[:1].expand(
                    len(asked.questions), -1, -1
                ),  # its shape; see CrossOncePerPicture
            ).last_hidden_state
        finally:
            self._seen.states = self._seen.counts = None
        return states, encoded["attention_mask"]


class Seen:
    """The pictures of the batch at work: states `(P, T, D)`, and how many rows are about each of them, in order."""

    states: torch.Tensor | None = None
    counts: list[int] | None = None


class CrossOncePerPicture(nn.Module):
    """Cross-attention in which all questions about a picture are one long sequence of queries.

    A query does not see the other queries, so nothing changes; but the keys and values of a picture are projected once
    instead of once a question, and are never copied. At BLIP-base's size that is most of the questions' cost.
    """

    def __init__(self, attention: nn.Module, seen: Seen) -> None:
        super().__init__()
        self.attention = attention
        self.seen = seen

    def forward(self, hidden_states: torch.Tensor, **options: object) -> tuple[torch.Tensor, None]:
        if self.seen.states is None or self.seen.counts is None:
            return self.attention(hidden_states, **options)
        counts = self.seen.counts
        # Rows come picture by picture. Pictures with equally many questions go through together.
        if len(set(counts)) == 1:
            return self._attend(hidden_states, self.seen.states), None
        parts = zip(hidden_states.split(counts), self.seen.states.split(1))
        return torch.cat([self._attend(rows, state) for rows, state in parts]), None

    def _attend(self, rows: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        queries = rows.reshape(len(states), -1, rows.shape[-1])
        return self.attention(queries, encoder_hidden_states=states)[0].reshape(rows.shape)


def restore_cross_mask(model: BlipForQuestionAnswering) -> None:
    """Give BLIP's cross-attention the mask that transformers 5.24 loses on the way.

    `BlipTextLayer` hands the mask over as `attention_mask`, and `BlipTextSelfAttention` overwrites it with None unless
    it comes as `encoder_attention_mask`. The hook passes it under both names.
    """

    def pass_mask(
        module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        if kwargs.get("encoder_attention_mask") is None:
            kwargs["encoder_attention_mask"] = kwargs.get("attention_mask")
        return args, kwargs

    for name, module in model.text_decoder.named_modules():
        if name.endswith("crossattention.self"):
            module.register_forward_pre_hook(pass_mask, with_kwargs=True)
