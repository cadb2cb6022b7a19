"""Inside ms-swift: loaded as its plugin loader does, called by its own reward code (`make test-hosts`)."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.hosts
swift_rewards = pytest.importorskip("swift.rewards")


def test_registered_by_the_plugin_and_called_on_samples(world, expected, monkeypatch):
    from swift.rl_core.data import GRPOSample
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func
    from swift.utils import import_external_file

    from rewards.hosts import shared

    paths, captions, config = world
    monkeypatch.setenv("REWARDS_CONFIG", config)
    import_external_file(str(Path(shared.__file__).with_name("ms_swift.py")))
    reward = swift_rewards.orms["rewards"]()
    pictures = [*([path] for path in paths), [{"bytes": None, "path": "/none.png"}]]
    rows = [
        {
            "messages": [{"role": "user", "content": "<image>Describe."}, {"role": "assistant", "content": text}],
            "images": images,
            "prompt_id": str(number),
        }
        for number, (text, images) in enumerate(zip([*captions, "unseen"], pictures, strict=True))
    ]
    table = compute_rewards_per_func([GRPOSample.from_row(row) for row in rows], [reward], None, torch.device("cpu"))
    assert table[:3, 0].tolist() == pytest.approx(expected.overall.tolist(), abs=1e-5)
    assert torch.isfinite(table).all() and float(table[3, 0]) == pytest.approx(float(expected.overall.mean()), abs=1e-5)


def test_several_rewards_never_see_a_zero(world, expected, monkeypatch):
    paths, captions, config = world
    monkeypatch.setenv("REWARDS_CONFIG", config)
    sys.modules.pop("rewards.hosts.ms_swift", None)
    orm = importlib.import_module("rewards.hosts.ms_swift").RewardsORM()
    logged = {}
    values = orm(
        [captions[0], captions[0]], images=[[paths[0]], []], prompt_id=["a", "a"], log_metric=logged.__setitem__
    )
    assert values == pytest.approx([float(expected.overall[0])] * 2, abs=1e-5)
    assert logged["rewards/HarmonicEval/abstained"] == 1 and "rewards/HarmonicEval/fluency/mean" in logged
