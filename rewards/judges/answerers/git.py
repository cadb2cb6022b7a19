"""GIT as an answerer: a decoder that reads the picture's patches, then the question, and goes on with the answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Unpack

import torch
from torch import nn
from transformers import GitForCausalLM
from transformers.modeling_outputs import BaseModelOutput

from rewards.judges.answerers.vqa import Asked, VQAJudge, by_length
from rewards.judges.local import LocalOptions

LONGEST_TEXT = 50
"""Most tokens of question and answer together, as in the official TIFA scorer."""


class GitJudge(VQAJudge):
    """GIT fine-tuned on VQAv2. Only questions of equal length form a batch: GIT's masks know no padding."""

    model_class = GitForCausalLM

    def __init__(self, path: str, **options: Unpack[LocalOptions]) -> None:
        super().__init__(path, **options)
        self._encoder = _Remembering(self.model.git.image_encoder)
        self.model.git.image_encoder = self._encoder

    @torch.no_grad()
    def _answer(self, asked: Asked) -> list[str]:
        features = self._encoder.look(asked.pixels["pixel_values"])
        prompts = [self._question(question) for question in asked.questions]
        answers = [""] * len(prompts)
        for batch in by_length(prompts):
            ids = torch.tensor([prompts[row] for row in batch], device=self.device)
            self._encoder.features = features[asked.owner[batch]]
            new = self.model.generate(
                pixel_values=asked.pixels["pixel_values"][asked.owner[batch]],
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_length=max(LONGEST_TEXT, ids.shape[1] + 5),
                do_sample=False,
            )[:, ids.shape[1] :]
            for row, text in zip(batch, self.tokenizer.batch_decode(new, skip_special_tokens=True)):
                answers[row] = text.strip()
        return answers

    def _choose(self, asked: Asked) -> list[torch.Tensor]:
        features = self._encoder.look(asked.pixels["pixel_values"])
        rows, starts, owners = [], [], []
        for at, (question, offered) in enumerate(zip(asked.questions, asked.choices)):
            prompt = self._question(question)
            for choice in offered:
                said = self.tokenizer(choice, add_special_tokens=False)["input_ids"]
                rows.append([*prompt, *said, self.tokenizer.sep_token_id])
                starts.append(len(prompt))
                owners.append(at)
        scores = torch.empty(len(rows), device=self.device)
        for batch in by_length(rows):
            ids = torch.tensor([rows[row] for row in batch], device=self.device)
            owner = asked.owner[[owners[row] for row in batch]]
            self._encoder.features = features[owner]
            logits = self.model(
                pixel_values=asked.pixels["pixel_values"][owner], input_ids=ids, use_cache=False
            ).logits[:, -ids.shape[1] : -1]  # the logits of the patches come first
            log_probs = logits.float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
            answer = torch.arange(1, ids.shape[1], device=self.device) >= torch.tensor(
                [[starts[row]] for row in batch], device=self.device
            )
            scores[batch] = (log_probs * answer).sum(1)
        return list(scores.split([len(offered) for offered in asked.choices]))

    def _question(self, question: str) -> list[int]:
        longest = self.model.config.max_position_embeddings - LONGEST_TEXT
        ids = self.tokenizer(question, add_special_tokens=False)["input_ids"][: max(1, longest)]
        return [self.tokenizer.cls_token_id, *ids]


class _Remembering(nn.Module):
    """An image encoder that is run by :meth:`look`, and that hands the model's forward what was seen then."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.features: torch.Tensor | None = None

    def look(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.encoder(pixel_values).last_hidden_state

    def forward(self, pixel_values: torch.Tensor, **options: object) -> BaseModelOutput | SimpleNamespace:
        if self.features is None:
            return self.encoder(pixel_values, **options)
        features, self.features = self.features, None
        return SimpleNamespace(last_hidden_state=features)
