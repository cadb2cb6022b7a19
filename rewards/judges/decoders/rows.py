"""From what is asked to token sequences: rows about one picture meet, equal ones are asked once, others are refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.decoders.encoding import Encoder, Looked
from rewards.judges.decoders.reading import Reading
from rewards.judges.pictures import pictures_of_rows
from rewards.judges.prompting import added_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Asked(NamedTuple):
    """One row of a call.

    Attributes:
        owner: Which of the caller's rows it belongs to, for its picture and for messages.
        prompt: The user's text.
        then: Tokens that the judge is taken to have said already.
        reading: What is read at the end; of no account where an answer is written.
    """

    owner: int
    prompt: str
    then: tuple[int, ...] = ()
    reading: Reading = Reading(())


class Abstained(NamedTuple):
    """Why a row has no result."""

    reason: str


class Pictured(NamedTuple):
    """The rows about the same pictures."""

    pictures: tuple[Picture, ...]
    places: list[int]


@dataclass
class Group:
    """Distinct token sequences about the same pictures.

    Attributes:
        inputs: What the processor made of the pictures for the vision tower.
        sequences: Token ids from the first to the last.
        readings: What is read at the end of each sequence.
        places: The rows of the call that each sequence answers.
        refused: Rows that cannot be asked, and why.
    """

    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    sequences: list[list[int]] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


class Rows:
    """Turns rows into groups, picture by picture, as they are needed.

    Args:
        encoder: The judge's processor.
        model: Its model: how many tokens its context has.
    """

    def __init__(self, encoder: Encoder, model: PreTrainedModel) -> None:
        self.encoder = encoder
        # What plain text may become: the unknown token, and single bytes where a tokenizer falls back to them.
        tokenizer = encoder.tokenizer
        harmless = {tokenizer.unk_token, *(f"<0x{byte:02X}>" for byte in range(256))}
        self._controls = {token_id for token, token_id in added_tokens(tokenizer).items() if token not in harmless}
        self._context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    def by_picture(self, images: Sequence[object], asked: Sequence[Asked]) -> tuple[list[Pictured], dict[int, str]]:
        """The rows about each of the distinct pictures, and the rows whose picture cannot be used, with the reason."""
        read = list(pictures_of_rows(images, keep_tensors=self.encoder.takes_tensors))
        found: dict[tuple[str, ...], Pictured] = {}
        refused: dict[int, str] = {}
        for place, row in enumerate(asked):
            pictures = read[row.owner]
            if isinstance(pictures, InputError):
                refused[place] = str(pictures)
            else:
                found.setdefault(tuple(one.key for one in pictures), Pictured(pictures, [])).places.append(place)
        return list(found.values()), refused

    def groups(self, pictured: Sequence[Pictured], asked: Sequence[Asked]) -> Iterator[Group]:
        """One group a picture.

        Raises:
            NotImplementedError: As :meth:`Encoder.look`.
        """
        for pictures, places in pictured:
            try:
                looked = self.encoder.look(pictures)
            except InputError as error:
                yield Group(refused={place: f"row {asked[place].owner}: {error}" for place in places})
                continue
            yield self._encoded(looked, places, asked)

    def _encoded(self, looked: Looked, places: Sequence[int], asked: Sequence[Asked]) -> Group:
        group = Group(looked.inputs)
        allowed = self.control_count(self.encoder.ids(looked, ""))
        encoded: dict[str, list[int]] = {}
        distinct: dict[tuple[tuple[int, ...], int], list[int]] = defaultdict(list)
        for place in places:
            row = asked[place]
            if row.prompt not in encoded:
                encoded[row.prompt] = self.encoder.ids(looked, row.prompt)
            if (why := self.problem(encoded[row.prompt], allowed)) is not None:
                group.refused[place] = f"row {row.owner}: {why}"
            else:
                distinct[(*encoded[row.prompt], *row.then), len(row.then)].append(place)
        for (sequence, _), same in distinct.items():
            group.sequences.append(list(sequence))
            group.readings.append(asked[same[0]].reading)
            group.places.append(same)
        return group

    def problem(self, ids: Sequence[int], allowed: int) -> str | None:
        """Why a prompt cannot be asked: it must fit the context, and hold no control tokens but the template's."""
        if self._context is not None and len(ids) > self._context:
            return f"the prompt has {len(ids)} tokens; the judge's context has {self._context}"
        if self.control_count(ids) != allowed:
            return "the text holds control tokens of the judge that cannot be written as plain text"
        return None

    def control_count(self, ids: Sequence[int]) -> int:
        """How many control tokens are among some ids."""
        counts = Counter(ids)
        return sum(counts[control] for control in self._controls)
