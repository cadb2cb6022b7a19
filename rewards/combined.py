"""Several rewards as one: weights, scales brought together, and a stated policy for abstentions."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from rewards.calling import PartFunction, part_functions
from rewards.errors import InputError
from rewards.functions import RewardLike, as_reward
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Details, Scores


class Combined(Reward):
    """A weighted sum of rewards.

    Its parts are the rewards' overall scores under their names, and behind them the parts of each as
    `<reward>/<part>`. Every reward keeps its own curves under its own name. Rewards whose judges are behind HTTP are
    asked at the same time.

    Args:
        rewards: rewards, or functions (:class:`rewards.functions.FunctionReward`).
        weights: one a reward; default: 1 each.
        standardize: "running" brings the rewards to one scale: each is shifted and divided by the mean and deviation
            of all its values so far (Welford), so that weights mean importance and not units (flow_grpo issue 188).
            "none" adds the raw values.
        on_abstain: "abstain": a sample that one reward cannot judge abstains as a whole. "renormalize": the others
            decide, with their weights scaled up to the same total. Never is an abstention counted as 0.
        optional: names of rewards whose None means "does not apply to this sample" (TRL's own meaning): they add
            nothing there, and the sample does not abstain for them.
        name: of its curves.

    Raises:
        InputError: not one weight a reward, two rewards of one name, or an unknown policy.

    Example:
        >>> def red(images, prompts, metadata=None): return [0.0, 1.0]
        >>> def size(images, prompts, metadata=None): return [10.0, None]
        >>> blank = torch.ones(2, 3, 4, 4)
        >>> Combined([red, size], [1.0, 0.1]).score(blank, ["a", "b"]).overall.tolist()
        [1.0, nan]
    """

    def __init__(
        self,
        rewards: Sequence[RewardLike],
        weights: Sequence[float] | None = None,
        standardize: Literal["none", "running"] = "none",
        on_abstain: Literal["abstain", "renormalize"] = "abstain",
        optional: Sequence[str] = (),
        name: str = "Combined",
    ) -> None:
        weights = [1.0] * len(rewards) if weights is None else list(weights)
        if len(rewards) != len(weights) or not rewards:
            raise InputError(f"expected one weight a reward, got {len(rewards)} rewards and {len(weights)} weights")
        if not all(math.isfinite(weight) for weight in weights):
            raise InputError(f"weights must be finite numbers, got {weights}")
        self.rewards = [as_reward(reward) for reward in rewards]
        self.names = [reward.__name__ for reward in self.rewards]
        if len(set(self.names)) < len(self.names):
            raise InputError(f"rewards must have different names for their curves, got {self.names}")
        if standardize not in ("none", "running") or on_abstain not in ("abstain", "renormalize"):
            raise InputError(f"unknown standardize={standardize!r} or on_abstain={on_abstain!r}")
        if unknown := sorted(set(optional) - set(self.names)):
            raise InputError(f"optional names {', '.join(unknown)}; the rewards are {', '.join(self.names)}")
        self.weights = torch.tensor(weights, dtype=torch.float64)
        self.standardize = standardize
        self.on_abstain = on_abstain
        self.optional = tuple(optional)
        self.__name__ = name
        self._running = [_RunningMoments() for _ in rewards]
        self._learns = standardize == "running"
        self.judges = next((reward.judges for reward in self.rewards if reward.judges is not None), None)
        self.remembers = self._learns or any(reward.remembers for reward in self.rewards)

    @property
    def takes_tensors(self) -> bool:
        """Where all parts do."""
        return all(reward.takes_tensors for reward in self.rewards)

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`: every reward scores every sample once."""
        return self._sum(self._each(images, texts, columns))

    @property
    def gradient_problem(self) -> str | None:
        """The first reward's that has none."""
        return next((problem for reward in self.rewards if (problem := reward.gradient_problem) is not None), None)

    def score_with_grad(self, images: Tensor, texts: Sequence[str], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score_with_grad`; running estimates are used, and stay as they are."""
        if (problem := self.gradient_problem) is not None:
            raise InputError(problem)
        return self._frozen()._sum([reward.score_with_grad(images, texts, **columns) for reward in self.rewards])

    def _sum(self, each: Sequence[Scores]) -> Scores:
        device = each[0].overall.device
        values = torch.stack([scores.overall.double().to(device) for scores in each], dim=1)
        overall = self.combine(values).float()
        values = values.detach().cpu()
        reasons = [
            self._reason(each, row) if abstained else None for row, abstained in enumerate(overall.isnan().tolist())
        ]
        named = list(zip(self.names, each, strict=True))
        return Scores(
            overall,
            reasons,
            part_names=(*self.names, *(f"{name}/{part}" for name, scores in named for part in scores.part_names)),
            parts=torch.cat([values, *(scores.parts.double() for scores in each)], dim=1),
            counts=torch.cat([values.isfinite().double(), *(scores.counts.double() for scores in each)], dim=1),
            means={f"{name}/{key}": column for name, scores in named for key, column in scores.means.items()},
            sums={f"{name}/{key}": column for name, scores in named for key, column in scores.sums.items()},
            details=[_details(named, row) for row in range(len(values))],
        )

    def _each(
        self, images: Sequence[object], texts: Sequence[str | None], columns: Mapping[str, Sequence[object]]
    ) -> list[Scores]:
        """The scores of each reward: those that wait for servers in threads, the others meanwhile in this one."""
        if not self.elsewhere or len(self.rewards) == 1:
            return [reward.score(images, texts, **columns) for reward in self.rewards]
        with ThreadPoolExecutor(len(self.rewards), thread_name_prefix="reward") as pool:
            asked = {
                at: pool.submit(reward.score, images, texts, **columns)
                for at, reward in enumerate(self.rewards)
                if reward.elsewhere
            }
            here = {
                at: reward.score(images, texts, **columns)
                for at, reward in enumerate(self.rewards)
                if not reward.elsewhere
            }
            return [here[at] if at in here else asked[at].result() for at in range(len(self.rewards))]

    @property
    def elsewhere(self) -> bool:
        """Whether one of the rewards waits for a server."""
        return any(reward.elsewhere for reward in self.rewards)

    def combine(self, values: Tensor) -> Tensor:
        """The weighted sum of `(N, R)` float64 values with NaN for abstentions; "running" updates the estimates."""
        weights = self.weights.to(values.device)
        if self.standardize == "running":
            for column, moments in enumerate(self._running):
                if self._learns:
                    moments.update(values[:, column].numpy())
            shift = values.new_tensor([moments.mean for moments in self._running])
            scale = values.new_tensor([moments.deviation for moments in self._running])
            values = (values - shift) / scale
        judged = values.isfinite()
        optional = torch.tensor([name in self.optional for name in self.names], device=values.device)
        # Where a reward has no value, nothing takes part, nor does its gradient: 0 times NaN would be NaN.
        known = torch.where(judged, values, torch.zeros_like(values))
        total = (known * weights).sum(dim=1)
        if self.on_abstain == "abstain":
            return torch.where((judged | optional).all(dim=1), total, torch.nan)
        weight = ((judged | optional) * weights.abs()).sum(dim=1)
        share = weights.abs().sum() / torch.where(weight > 0, weight, 1.0)
        return torch.where(weight > 0, total * share, torch.nan)

    def metrics(self, scores: Scores) -> dict[str, float]:
        """The sum under its own name (`overall` and `abstained`), and every reward under that reward's name."""
        whole = Scores(scores.overall, scores.reasons)
        flat = whole.metrics(self.__name__)
        for reward in self.rewards:
            if reward.__name__ in scores.part_names:  # a batch that failed as a whole has no parts
                flat |= reward.metrics(_component(scores, reward.__name__))
        return flat

    def per_reward(self) -> list[PartFunction]:
        """One TRL reward function a reward, all judged in one pass: for weights of TRL's own, or its GDPO."""
        return part_functions(self, self.names)

    def parts_to_train(self) -> dict[str, float]:
        """The parts of each reward as `<reward>/<part>`, or where it names none the reward itself, by its weight."""
        parts: dict[str, float] = {}
        for reward, weight in zip(self.rewards, self.weights.tolist(), strict=True):
            own = {f"{reward.__name__}/{part}": weight * share for part, share in reward.parts_to_train().items()}
            parts |= own or {reward.__name__: weight}
        return parts

    def check_prompts(self, texts: Sequence[str]) -> None:
        """See :meth:`rewards.reward.Reward.check_prompts`."""
        for reward in self.rewards:
            reward.check_prompts(texts)

    def check_columns(self, columns: Mapping[str, Sequence[object]]) -> None:
        """See :meth:`rewards.reward.Reward.check_columns`."""
        for reward in self.rewards:
            reward.check_columns(columns)

    def for_evaluation(self) -> Combined:
        """The same sum on the scales reached so far, which no held-out sample moves."""
        frozen = self._frozen()
        frozen.rewards = [reward.for_evaluation() for reward in self.rewards]
        return frozen

    def _frozen(self) -> Combined:
        """The same sum, whose running estimates stay as they are."""
        frozen = copy.copy(self)
        frozen._learns = False
        return frozen

    def state_dict(self) -> dict[str, Json]:
        """The running estimates, and what the rewards keep themselves."""
        return {
            "running": [[m.count, m.mean, m.squares] for m in self._running],
            "rewards": [reward.state_dict() for reward in self.rewards],
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Take over what :meth:`state_dict` gave."""
        running = cast("Sequence[tuple[int, float, float]]", state["running"])
        for moments, (count, mean, squares) in zip(self._running, running, strict=True):
            moments.count, moments.mean, moments.squares = count, mean, squares
        for reward, kept in zip(self.rewards, cast("Sequence[Mapping[str, Json]]", state["rewards"]), strict=True):
            reward.load_state_dict(kept)

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """Weights, policies, and each reward's own identity."""
        return {
            "reward": self.__name__,
            "weights": dict(zip(self.names, self.weights.tolist(), strict=True)),
            "standardize": self.standardize,
            "on_abstain": self.on_abstain,
            "optional": list(self.optional),
            "rewards": {reward.__name__: reward.identity(texts) for reward in self.rewards},
        }

    def _reason(self, each: Sequence[Scores], row: int) -> str:
        said = [
            f"{name}: {scores.reasons[row]}"
            for name, scores in zip(self.names, each, strict=True)
            if name not in self.optional and scores.reasons[row] is not None
        ]
        return "; ".join(said) or "the weighted sum is not finite"


def _details(named: Sequence[tuple[str, Scores]], row: int) -> Details:
    return {name: scores.details[row] for name, scores in named if scores.details[row]}


def _component(scores: Scores, name: str) -> Scores:
    """One reward's own scores, out of those of the sum."""
    prefix = f"{name}/"
    columns = [at for at, part in enumerate(scores.part_names) if part.startswith(prefix)]
    return Scores(
        scores.parts[:, scores.part_names.index(name)],
        scores.reasons,
        tuple(scores.part_names[at].removeprefix(prefix) for at in columns),
        scores.parts[:, columns],
        scores.counts[:, columns],
        {key.removeprefix(prefix): column for key, column in scores.means.items() if key.startswith(prefix)},
        {key.removeprefix(prefix): column for key, column in scores.sums.items() if key.startswith(prefix)},
    )


class _RunningMoments:
    """Mean and deviation of all values so far (Chan's batched form of Welford's algorithm)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0

    def update(self, values: np.ndarray) -> None:
        values = values[np.isfinite(values)]
        if not len(values):
            return
        total = self.count + len(values)
        delta = float(values.mean()) - self.mean
        self.squares += float(((values - values.mean()) ** 2).sum()) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count = total

    @property
    def deviation(self) -> float:
        """1 until the values have a spread, so that a constant reward is shifted to 0 and not blown up."""
        deviation = math.sqrt(self.squares / self.count) if self.count else 0.0
        return deviation if deviation > 1e-8 else 1.0
