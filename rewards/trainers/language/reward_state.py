"""What a reward learns from the samples (a running scale) goes into every checkpoint, and comes back with it."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from rewards.reward import Reward


class RewardState(TrainerCallback, ExportableState):
    """Keeps the state of a reward in `trainer_state.json`.

    Args:
        reward: the training reward.
        checkpoint: whose state the reward takes over; None at the start of a run.
    """

    def __init__(self, reward: Reward, checkpoint: Path | None = None) -> None:
        self.reward = reward
        if checkpoint is not None:
            saved = json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
            kept = (saved.get("stateful_callbacks") or {}).get(type(self).__name__)
            if kept is not None:
                reward.load_state_dict(kept["attributes"]["state"])

    def state(self) -> dict[str, object]:
        """For transformers, which writes it into `trainer_state.json`."""
        return {"args": {}, "attributes": {"state": self.reward.state_dict()}}
