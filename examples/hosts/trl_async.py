"""GRPO in TRL with two judges behind `rewards serve`, which TRL asks at the same time.

python examples/hosts/trl_async.py http://host:8008 http://other:8008
"""

import sys

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from rewards import HarmonicEval, load_judge
from rewards.calling import asynchronous

rewards = [HarmonicEval(load_judge(url), name=f"judge {number}") for number, url in enumerate(sys.argv[1:])]
trainer = GRPOTrainer(
    "Qwen/Qwen2.5-VL-3B-Instruct",
    [asynchronous(reward) for reward in rewards],
    args=GRPOConfig("runs/two_judges", remove_unused_columns=False),
    train_dataset=load_dataset("json", data_files="train.jsonl")["train"],  # columns: prompt, image
)
trainer.train()
