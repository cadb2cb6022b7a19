"""Train a vision-language model with GRPO or RLOO on HarmonicEval.

Offline, on a CPU, in minutes (the shapes world that ships with the package):

    python examples/grpo_vlm.py --config configs/grpo_shapes.yaml
    python examples/grpo_vlm.py --config configs/grpo_shapes.yaml --algorithm rloo output_dir=runs/rloo_shapes

Real checkpoints (see the header of the config for memory and launch):

    accelerate launch --config_file configs/accelerate/multi_gpu.yaml examples/grpo_vlm.py \
        --config configs/grpo_qwen2_5_vl_3b.yaml

Any setting can be changed by `key=value`, nested ones by dots: `trainer.max_steps=20 trainer.per_criterion=true`.
"""

from __future__ import annotations

import argparse

from rewards.errors import exit_cleanly
from rewards.runs.config import load_config
from rewards.trainers.language.settings import LanguageRunConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config", required=True, help="YAML file of settings (rewards.trainers.language.settings.LanguageRunConfig)"
    )
    parser.add_argument("--algorithm", choices=["grpo", "rloo"], help="overrides the config's")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that win over the file")
    arguments = parser.parse_args()

    with exit_cleanly():
        chosen = [f"algorithm={arguments.algorithm}"] if arguments.algorithm else []
        config = load_config(LanguageRunConfig, arguments.config, [*chosen, *arguments.overrides])

        # Imported here, so that --help and a mistyped setting answer at once.
        from rewards.runs.summary import format_summary
        from rewards.trainers.language.run import run_language

        print(format_summary(run_language(config)))
        print(f"written to {config.output_dir}; curves: rewards curves {config.output_dir}")


if __name__ == "__main__":
    main()
