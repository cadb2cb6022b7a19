"""BLIP-2 as an answerer: a picture becomes a few query tokens in front of the prompt of a T5 or an OPT."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn
from transformers import Blip2ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from rewards.judges.answerers.vqa import LONGEST_ANSWER, Asked, VQAJudge
from rewards.judges.local import LocalOptions

ANSWER_PROMPT = "Answer the question. Question: {question} Answer:"
"""The open prompt of the official TIFA scorer. (Another one names the choices; `answer` is given none.)"""

LONGEST_QUESTION = 400
"""Most tokens of a question; OPT's 2,048 positions and T5's training length of 512 leave room for that."""


class Blip2Judge(VQAJudge):
    """BLIP-2 with a T5 (an encoder reads the prompt) or an OPT (a decoder goes on with it) as its language model."""

    model_class = Blip2ForConditionalGeneration

    def __init__(self, path: str, **options: Unpack[LocalOptions]) -> None:
        super().__init__(path, **options)
        self._encoder_decoder = self.model.language_model.config.is_encoder_decoder
        self._stop = self.model.language_model.config.eos_token_id

    def _parts(self) -> list[nn.Module]:
        return [self.model.vision_model, self.model.qformer, self.model.language_model]

    @torch.no_grad()
    def _answer(self, asked: Asked) -> list[str]:
        states, mask = self._prompts(asked, padding_side="right" if self._encoder_decoder else "left")
        ids = self.model.language_model.generate(
            inputs_embeds=states, attention_mask=mask, max_new_tokens=LONGEST_ANSWER, do_sample=False
        )
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def _choose(self, asked: Asked) -> list[torch.Tensor]:
        counts = [len(offered) for offered in asked.choices]
        if not sum(counts):
            return [torch.empty(0) for _ in counts]
        owner = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)], device=self.device)
        said = [[*self._answer_ids(text), self._stop] for offered in asked.choices for text in offered]
        longest = max(map(len, said))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in said], device=self.device)
        valid = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in said], device=self.device)
        score = self._score_t5 if self._encoder_decoder else self._score_opt
        log_probs = score(asked, owner, ids, valid).float().log_softmax(-1).gather(2, ids[..., None])[..., 0]
        return list((log_probs * valid).sum(1).split(counts))

    def _score_t5(self, asked: Asked, owner: torch.Tensor, ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        states, mask = self._prompts(asked, padding_side="right")
        read = self.model.language_model.get_encoder()(inputs_embeds=states, attention_mask=mask).last_hidden_state
        start = torch.full_like(ids[:, :1], self.model.language_model.config.decoder_start_token_id)
        return self.model.language_model(
            encoder_outputs=BaseModelOutput(last_hidden_state=read[owner]),
            attention_mask=mask[owner],
            decoder_input_ids=torch.cat([start, ids[:, :-1]], dim=1),
        ).logits

    def _score_opt(self, asked: Asked, owner: torch.Tensor, ids: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        states, mask = self._prompts(asked, padding_side="left")
        words = self.model.get_input_embeddings()(ids)
        logits = self.model.language_model(
            inputs_embeds=torch.cat([states[owner], words], dim=1),
            attention_mask=torch.cat([mask[owner], valid], dim=1),
        ).logits
        return logits[:, states.shape[1] - 1 : -1]

    def _cut(self, question: str) -> str:
        ids = self.tokenizer(question, add_special_tokens=False)["input_ids"]
        return question if len(ids) <= LONGEST_QUESTION else self.tokenizer.decode(ids[:LONGEST_QUESTION])

    def _answer_ids(self, text: str) -> list[int]:
        return self.tokenizer((" " if not self._encoder_decoder else "") + text, add_special_tokens=False)["input_ids"]

    def _prompts(self, asked: Asked, padding_side: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings `(Q, T, D)` and mask `(Q, T)`: the picture's query tokens, then the prompt."""
        queries = self._look(asked.pixels["pixel_values"])[asked.owner]
        encoded = self.tokenizer(
            [ANSWER_PROMPT.format(question=self._cut(question)) for question in asked.questions],
            padding=True,
            padding_side=padding_side,
            return_tensors="pt",
        ).to(self.device)
        words = self.model.get_input_embeddings()(encoded["input_ids"])
        mask = encoded["attention_mask"]
        if padding_side == "right":
            seen = torch.ones(queries.shape[:2], dtype=mask.dtype, device=self.device)
            return torch.cat([queries, words], dim=1), torch.cat([seen, mask], dim=1)
        # Left padding comes before the picture: move each row's padding to the front of its query tokens.
        padding = (mask == 0).sum(1)
        width = queries.shape[1] + mask.shape[1]
        states = words.new_zeros(len(words), width, words.shape[-1])
        full = mask.new_zeros(len(words), width)
        for row, skipped in enumerate(padding.tolist()):
            states[row, skipped:] = torch.cat([queries[row], words[row, skipped:]])
            full[row, skipped:] = 1
        return states, full

    def _look(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """`(P, query tokens, D)`: what the language model sees of each picture."""
        seen = self.model.vision_model(pixel_values).last_hidden_state
        queries = self.model.qformer(
            query_embeds=self.model.query_tokens.expand(len(seen), -1, -1),
            encoder_hidden_states=seen,
            encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long, device=self.device),
        ).last_hidden_state
        return self.model.language_projection(queries.to(seen.dtype))  # the Q-Former may be kept in float32
