"""SBERT as the released TIFA scorer runs it (`tifascore/mc_sbert.py`), so that ties and rounding fall as they do there.

sentence-transformers gives the same vectors to 1e-6; but it sorts and batches texts of many questions together, and
where two choices lie equally near, that decides between them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CACHED = 16384


class ReleasedSentences:
    """Mean-pooled, normalised embeddings; the choices of one question form a batch, its answer another.

    Args:
        name: checkpoint or directory of a BERT-like encoder.
        device: where it runs.

    Example:
        >>> sentences = ReleasedSentences("sentence-transformers/all-mpnet-base-v2")  # doctest: +SKIP
        >>> sentences.nearest("pale green", ["black", "green"])[0]  # doctest: +SKIP
        1
    """

    def __init__(self, name: str, device: str = "cpu") -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModel.from_pretrained(name, use_safetensors=True)
        self.model = model.to(device).eval().requires_grad_(False)
        self._embedded: OrderedDict[tuple[str, ...], torch.Tensor] = OrderedDict()

    def nearest(self, answer: str, choices: Sequence[str]) -> tuple[int, str, float]:
        """Position of the choice of the largest cosine with the answer, "sentence", and the cosine."""
        similarities = torch.matmul(self._embed(tuple(choices)), self._embed((answer,)).T)
        index = int(torch.argmax(similarities))
        return index, "sentence", float(similarities[index])

    def _embed(self, texts: tuple[str, ...]) -> torch.Tensor:
        """`(len(texts), D)` on the CPU, embedded as one batch and kept."""
        if texts not in self._embedded:
            encoded = self.tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
            with torch.no_grad():
                hidden = self.model(**encoded.to(self.model.device))[0]
            mask = encoded["attention_mask"].unsqueeze(-1).expand(hidden.size()).float()
            pooled = torch.sum(hidden * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)
            self._embedded[texts] = torch.nn.functional.normalize(pooled, p=2, dim=1).cpu()
            if len(self._embedded) > _CACHED:
                self._embedded.popitem(last=False)
        return self._embedded[texts]
