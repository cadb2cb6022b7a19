"""What is said about a judge that cannot be loaded."""

import pytest

from rewards.errors import InputError
from rewards.judges.loading import load_judge
from rewards.judges.presets import PRESETS


def test_a_preset_whose_checkpoint_is_not_there_is_not_called_unknown(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        InputError, match=f"judge 'blip-large' is the checkpoint '{PRESETS['blip-large']}', which could not"
    ):
        load_judge("blip-large")
    with pytest.raises(InputError, match="unknown judge 'blip-larg': not a preset"):
        load_judge("blip-larg")
