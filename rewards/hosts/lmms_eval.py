"""lmms-eval: metrics of a task, by `process_results` and aggregations. In the `utils.py` beside the task's YAML:

    from rewards.hosts.lmms_eval import RewardTask
    task = RewardTask("reward.yaml"); process_results, overall = task.process_results, task.mean("overall")

and in the YAML `process_results: !function utils.process_results` and `process_results_use_image: true` (else lmms-eval
takes the pictures out of the documents first), with a metric `rewards_overall` whose aggregation is `!function
utils.overall`. The picture is the document's `image`. All texts are judged in one pass when the first metric is
aggregated. A text that cannot be judged is left out of the means and counted by `task.abstained`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rewards.calling import score_guarded
from rewards.hosts.shared import PICTURE_KEYS, columns_of, first_of, resident_reward
from rewards.scores import Scores

logger = logging.getLogger(__name__)

Aggregation = Callable[[Sequence["Item"]], float]


class Item(NamedTuple):
    """One document with the model's answer."""

    doc: Mapping[str, object]
    text: str | None


class RewardTask:
    """A reward as the metrics of an lmms-eval task.

    Args:
        config, settings: of :func:`rewards.hosts.shared.resident_reward`.
    """

    def __init__(self, config: str | None = None, **settings: object) -> None:
        self.reward = resident_reward(config, **settings)
        self._items: Sequence[Item] = ()
        self._scores = Scores.nothing([])

    def process_results(self, doc: Mapping[str, object], results: Sequence[str]) -> dict[str, Item]:
        """What one document brings to each metric: lmms-eval gives it to the aggregations.

        Args:
            doc: the document, with its picture under `image` (or `images`), and `question` or `box`.
            results: the model's answer.
        """
        item = Item(doc, results[0] if results else None)
        return {f"rewards_{name}": item for name in ("overall", "abstained", *self._parts())}

    def mean(self, part: str) -> Aggregation:
        """The aggregation of `rewards_<part>`: the mean over the texts that were judged; NaN without any.

        Args:
            part: `overall`, or the name of a part, such as `correctness`.
        """

        def aggregate(items: Sequence[Item]) -> float:
            return self.reward.metrics(self._judged(items))[f"rewards/{self.reward.__name__}/{part}/mean"]

        return aggregate

    def abstained(self, items: Sequence[Item]) -> float:
        """The aggregation of `rewards_abstained`: how many texts could not be judged."""
        return float(self._judged(items).abstained.sum())

    def _parts(self) -> tuple[str, ...]:
        return self.reward.score([], [], inputs=[], boxes=[]).part_names

    def _judged(self, items: Sequence[Item]) -> Scores:
        # Every metric is aggregated over the same items, handed over in a list of its own.
        if [id(item) for item in items] != [id(item) for item in self._items]:
            docs = [item.doc for item in items]
            pictures = [first_of(doc, PICTURE_KEYS) for doc in docs]
            self._scores = score_guarded(self.reward, pictures, [item.text for item in items], **columns_of(docs))
            self._items = items
            if docs and bool(self._scores.abstained.all()) and pictures.count(None) == len(docs):
                logger.warning("no document has a picture: set process_results_use_image: true in the task's YAML")
        return self._scores
