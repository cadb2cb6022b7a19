"""Visual question answering models as TIFA's answerers: BLIP and ViLT."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import BlipForQuestionAnswering, ViltForQuestionAnswering

from rewards.errors import InputError
from rewards.judges.base import check_rows
from rewards.judges.local import LocalJudge
from rewards.judges.pictures import Picture, picture

logger = logging.getLogger(__name__)

LONGEST_ANSWER = 20
"""Most tokens of an answer; `generate`'s own default, which the official scorer uses."""


class VQAJudge(LocalJudge):
    """What the answerers share: rows are grouped by picture, so that each picture is encoded once."""

    @property
    def _takes_tensors(self) -> bool:
        return not type(self.processor.image_processor).__name__.endswith("Pil")

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str | None]:
        """Free-form answers; None where a row's picture cannot be read."""
        check_rows(images, questions, "question")
        answers: list[str | None] = [None] * len(questions)
        for pixels, rows in self._by_picture(images):
            found = self._answer_about(pixels, [questions[row] for row in rows])
            for row, text in zip(rows, found):
                answers[row] = text
        return answers

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice as the whole answer; NaN where a row's picture cannot be read."""
        check_rows(images, questions, "question")
        if len(choices) != len(questions):
            raise InputError(f"got {len(questions)} questions but {len(choices)} lists of choices")
        scores = [torch.full((len(offered),), torch.nan) for offered in choices]
        for pixels, rows in self._by_picture(images):
            found = self._choose_about(pixels, [questions[row] for row in rows], [list(choices[row]) for row in rows])
            for row, score in zip(rows, found):
                scores[row] = score.float().cpu()
        return scores

    def _by_picture(self, images: Sequence[Any]) -> list[tuple[dict[str, torch.Tensor], list[int]]]:
        """Each distinct picture's inputs on the device, with its rows; rows without a usable picture are in none."""
        self._onload()
        pictures: dict[str, dict[str, torch.Tensor]] = {}
        rows: dict[str, list[int]] = defaultdict(list)
        for index, image in enumerate(images):
            try:
                one = picture(image, index, keep_tensors=self._takes_tensors)
                if one.key not in pictures:
                    pictures[one.key] = self._preprocess(one, index)
            except InputError as error:
                logger.warning("judge %s abstains: %s", self.name, error)
                continue
            rows[one.key].append(index)
        return [(pictures[key], rows[key]) for key in rows]

    def _preprocess(self, one: Picture, index: int) -> dict[str, torch.Tensor]:
        on_device = {"device": self.device} if one.form == "tensor" else {}
        try:
            inputs = self.processor.image_processor(one.pixels, return_tensors="pt", **on_device)
        except ValueError as error:  # a side of zero pixels after resizing, for example
            raise InputError(
                f"image {index}: the judge's processor refuses it: {' '.join(str(error).split())}"
            ) from error
        return {
            key: value.to(self.device, self.model.dtype if value.is_floating_point() else value.dtype)
            for key, value in inputs.items()
        }

    def _answer_about(self, pixels: dict[str, torch.Tensor], questions: list[str]) -> list[str]:
        raise NotImplementedError

    def _choose_about(
        self, pixels: dict[str, torch.Tensor], questions: list[str], choices: list[list[str]]
    ) -> list[torch.Tensor]:
        raise NotImplementedError


class BlipJudge(VQAJudge):
    """BLIP for question answering: the question is read with the picture, the answer is written or scored.

    `BlipForQuestionAnswering.generate` encodes the picture for every question, gives the decoder an all-ones mask over
    the padded question, and its cross-attention drops even that mask: padding changed half of the answers. Here the parts
    are called one by one, and the mask is put back (:func:`restore_cross_mask`).
    """

    model_class = BlipForQuestionAnswering

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        restore_cross_mask(self.model)
        self.tokenizer = self.processor.tokenizer

    @torch.no_grad()
    def _answer_about(self, pixels: dict[str, torch.Tensor], questions: list[str]) -> list[str]:
        states, mask = self._read_questions(pixels, questions)
        config = self.model.config.text_config
        ids = self.model.text_decoder.generate(
            input_ids=torch.full((len(questions), 1), self.model.decoder_start_token_id, device=self.device),
            eos_token_id=config.sep_token_id,
            pad_token_id=config.pad_token_id,
            encoder_hidden_states=states,
            encoder_attention_mask=mask,
            max_new_tokens=LONGEST_ANSWER,
            do_sample=False,
        )
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    @torch.no_grad()
    def _choose_about(
        self, pixels: dict[str, torch.Tensor], questions: list[str], choices: list[list[str]]
    ) -> list[torch.Tensor]:
        states, mask = self._read_questions(pixels, questions)
        owner = [row for row, offered in enumerate(choices) for _ in offered]
        if not owner:
            return [torch.empty(0) for _ in questions]
        # An answer runs from the start token to [SEP]: the tokenizer's [CLS] is replaced as in the model's training.
        texts = [text for offered in choices for text in offered]
        encoded = self.tokenizer(texts, padding=True, truncation=True, padding_side="right", return_tensors="pt")
        ids, valid = encoded["input_ids"].to(self.device), encoded["attention_mask"].to(self.device)
        ids[:, 0] = self.model.decoder_start_token_id
        logits = self.model.text_decoder(
            input_ids=ids,
            attention_mask=valid,
            encoder_hidden_states=states[owner],
            encoder_attention_mask=mask[owner],
        ).logits
        log_probs = logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        scores = (log_probs * valid[:, 1:]).sum(1)
        return list(scores.split([len(offered) for offered in choices]))

    def _read_questions(
        self, pixels: dict[str, torch.Tensor], questions: list[str]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The questions read with the picture: states `(Q, T, D)` and mask `(Q, T)`; the picture is encoded once."""
        seen = self.model.vision_model(pixel_values=pixels["pixel_values"]).last_hidden_state
        encoded = self.tokenizer(
            questions,
            padding=True,
            truncation=True,
            max_length=self.model.config.text_config.max_position_embeddings,
            padding_side="right",
            return_tensors="pt",
        ).to(self.device)
        mask = encoded["attention_mask"]
        states = self.model.text_encoder(
            input_ids=encoded["input_ids"],
            attention_mask=mask,
            encoder_hidden_states=seen.expand(len(questions), -1, -1),
            encoder_attention_mask=torch.ones(len(questions), seen.shape[1], dtype=torch.long, device=self.device),
        ).last_hidden_state
        return states, mask


def restore_cross_mask(model: Any) -> None:
    """Give BLIP's cross-attention the mask that transformers 5.24 loses on the way.

    `BlipTextLayer` hands the mask over as `attention_mask`, and `BlipTextSelfAttention` overwrites it with None unless it
    comes as `encoder_attention_mask`. The hook passes it under both names.
    """

    def pass_mask(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if kwargs.get("encoder_attention_mask") is None:
            kwargs["encoder_attention_mask"] = kwargs.get("attention_mask")
        return args, kwargs

    for name, module in model.text_decoder.named_modules():
        if name.endswith("crossattention.self"):
            module.register_forward_pre_hook(pass_mask, with_kwargs=True)


class ViltJudge(VQAJudge):
    """ViLT for question answering: a classifier over a closed list of answers (3,129 for the VQAv2 checkpoint)."""

    model_class = ViltForQuestionAnswering

    def _answer_about(self, pixels: dict[str, torch.Tensor], questions: list[str]) -> list[str]:
        labels = self.model.config.id2label
        return [labels[int(row.argmax())] for row in self._log_probs(pixels, questions)]

    def _choose_about(
        self, pixels: dict[str, torch.Tensor], questions: list[str], choices: list[list[str]]
    ) -> list[torch.Tensor]:
        """A choice that is no label of the classifier has log-probability -inf: it cannot be this model's answer."""
        ids = {label.strip().lower(): index for index, label in self.model.config.id2label.items()}
        scores = []
        for row, offered in zip(self._log_probs(pixels, questions), choices):
            found = [ids.get(choice.strip().lower()) for choice in offered]
            scores.append(torch.tensor([-torch.inf if at is None else float(row[at]) for at in found]))
        return scores

    @torch.no_grad()
    def _log_probs(self, pixels: dict[str, torch.Tensor], questions: list[str]) -> torch.Tensor:
        """`(Q, labels)`: the classifier's logits as a softmax over its answers, as its argmax reads them."""
        longest = self.model.config.max_position_embeddings
        encoded = self.processor.tokenizer(
            questions, padding=True, truncation=True, max_length=longest, padding_side="right", return_tensors="pt"
        )
        batch = {key: value.to(self.device) for key, value in encoded.items()}
        batch |= {key: value.expand(len(questions), *value.shape[1:]) for key, value in pixels.items()}
        return self.model(**batch).logits.float().log_softmax(-1)
