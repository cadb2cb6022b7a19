"""Run by `accelerate launch` from test_two_processes.py: each rank rates and answers its share of the rows.

accelerate launch --num_processes 2 tests/judges/two_processes.py RATER ANSWERER OUT
"""

import json
import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from rewards.judges.loading import load_judge
from tests import tiny_models


def rows() -> tuple[list, list[str]]:
    images = [tiny_models.picture(seed % 3, (48, 40)) for seed in range(10)]
    return images, [f"rate the caption a red circle {'and blue ' * (seed % 4)}{seed}" for seed in range(10)]


def main(rater: str, answerer: str, out: str) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    judge, other = load_judge(rater), load_judge(answerer)
    policy = accelerator.prepare(torch.nn.Linear(2, 2))  # the trainer wraps its own model, not the judge's
    assert accelerator.num_processes == 1 or type(policy).__name__ == "DistributedDataParallel"
    images, prompts = rows()
    mine = list(range(accelerator.process_index, len(prompts), accelerator.num_processes))
    probabilities = judge.rate([images[row] for row in mine], [prompts[row] for row in mine]).probabilities.tolist()
    answers = other.answer([images[row] for row in mine], [prompts[row] for row in mine])
    wrapped = type(getattr(judge, "model", None)).__name__
    results = gather_object(list(zip(mine, probabilities, answers, [wrapped] * len(mine), [os.getpid()] * len(mine))))
    if accelerator.is_main_process:
        Path(out).write_text(json.dumps(sorted(results)))
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main(*sys.argv[1:])
