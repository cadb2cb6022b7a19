"""TRL's keys under our names."""

from rewards.runs.trl_keys import metric_keys


def test_trl_keys_become_metrics_keys():
    logs = {"rewards/f/mean": 1, "rewards/H/fluency/mean": 2, "eval_rewards/f/std": 3, "train_loss": 4, "kl": 5}
    assert metric_keys(logs) == {
        "rewards/f/overall/mean": 1, "rewards/H/fluency/mean": 2, "eval/rewards/f/overall/std": 3, "policy/kl": 5,
    }  # fmt: skip
    logs = {"loss": 0.5, "reward": 2.0, "train/skipped_steps": 0, "eval_reward": 1.0, "train_runtime": 9.0}
    logs |= {
        "rewards/f/overall/count": 3,
        "rewards/f/abstained": 1,
        "rewards/g/overall/count": 4,
        "rewards/g/abstained": 0,
    }
    named = metric_keys(logs)
    assert (named["train/loss"], named["train/reward"], named["eval/train/reward"]) == (0.5, 2.0, 1.0)
    assert named["samples/failure_rate"] == 0.25 and "train_runtime" not in named


def test_what_trl_says_of_all_processes_stands_where_a_reward_logged_the_same():
    for logs in (
        {"rewards/f/mean": 1.0, "rewards/f/overall/mean": 9.0},
        {"rewards/f/overall/mean": 9.0, "rewards/f/mean": 1.0},
    ):
        assert metric_keys(logs) == {"rewards/f/overall/mean": 1.0}
