"""torchmetrics' own collection, synchronisation, copies and pickles."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from torchmetrics import MetricCollection

from rewards.functions import FunctionReward
from rewards.hosts.torchmetrics import RewardMetric
from tests.hosts.pages import snippet


def test_the_lines_of_the_page_pool_batches_as_one(world, expected, monkeypatch):
    paths, captions, config = world
    monkeypatch.chdir(Path(config).parent)
    names = {}
    exec(snippet("torchmetrics"), names)
    metric = names["metric"]
    metric.update(paths[:2], captions[:2])
    metric.update([paths[2], None], [captions[2], "unseen"])
    values = metric.compute()
    assert float(values["overall"]) == pytest.approx(float(expected.overall.double().mean()), abs=1e-6)
    assert float(values["clarity"]) == pytest.approx(float(expected.criteria[:, 2].double().mean()), abs=1e-6)
    assert float(values["abstained"]) == 1
    metric.reset()
    assert metric.compute()["overall"].isnan() and metric.compute()["abstained"] == 0
    batch = metric(paths[:1], captions[:1])  # the batch's own value, and kept for compute
    assert float(batch["overall"]) == pytest.approx(float(expected.overall[0]), abs=1e-6)


def test_a_copy_and_a_pickle_go_on_from_where_it_was(world, expected):
    paths, captions, config = world
    metric = RewardMetric(config)
    metric.update(paths[:1], captions[:1])
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        other.update(paths[1:], captions[1:])
        assert float(other.compute()["overall"]) == pytest.approx(float(expected.overall.double().mean()), abs=1e-6)
    assert float(metric.compute()["overall"]) == pytest.approx(float(expected.overall[0]), abs=1e-6)


def test_processes_are_put_together_by_their_counts(world, expected):
    paths, captions, config = world
    here, there = RewardMetric(config), RewardMetric(config)
    here.update(paths[:1], captions[:1])
    there.update([*paths[1:], None], [*captions[1:], "unseen"])
    states = {name: [getattr(here, name), getattr(there, name)] for name in here._reductions}
    gathered = iter(states.values())
    here.sync(dist_sync_fn=lambda value, group=None: next(gathered), distributed_available=lambda: True)
    values = RewardMetric.compute(here)  # of what is synchronised; the wrapped one would begin anew
    assert float(values["overall"]) == pytest.approx(float(expected.overall.double().mean()), abs=1e-6)
    assert float(values["abstained"]) == 1
    here.unsync()
    assert float(here.compute()["overall"]) == pytest.approx(float(expected.overall[0]), abs=1e-6)


def length(completions, **columns):
    return [float(len(text)) if text else None for text in completions]


def one_of_two(rank, folder):
    """Run in a process of its own: unequal shares, one abstention, put together by torchmetrics itself."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    metric = RewardMetric(FunctionReward(length))
    texts = (["a", "bbb"], ["", "ccccc", "dd"])[rank]
    metric.update([None] * len(texts), texts)
    values = {name: float(value) for name, value in metric.compute().items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(values))
    torch.distributed.destroy_process_group()


def test_two_real_processes_compute_the_mean_of_all_samples(tmp_path):
    torch.multiprocessing.spawn(one_of_two, (str(tmp_path),), nprocs=2)
    for rank in range(2):
        values = json.loads((tmp_path / f"{rank}.json").read_text())
        assert values["overall"] == pytest.approx((1 + 3 + 5 + 2) / 4) and values["abstained"] == 1


def never(completions, **columns):
    return [None] * len(completions)


def later(completions, **columns):
    return [None if text == "first" else 3.0 for text in completions]


def test_a_collection_keeps_rewards_apart_that_begin_alike():
    both = MetricCollection(
        {name: RewardMetric(FunctionReward(one)) for name, one in (("never", never), ("later", later))}
    )
    for text in ("first", "second"):
        both.update([None], [text])
    values = both.compute()
    assert values["later_overall"] == 3.0 and values["never_overall"].isnan()
    assert (values["later_abstained"], values["never_abstained"]) == (1, 2)
    both.reset()
    assert torch.stack([value for key, value in both.compute().items() if "overall" in key]).isnan().all()
