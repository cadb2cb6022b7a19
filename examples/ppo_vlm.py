"""Train a vision-language model with PPO on HarmonicEval.

Offline, on a CPU, in minutes (the shapes world that ships with the package):

    python examples/ppo_vlm.py --config configs/ppo_shapes.yaml

Real checkpoints (see the header of the config for memory and launch):

    accelerate launch --config_file configs/accelerate/one_gpu.yaml examples/ppo_vlm.py \
        --config configs/ppo_smolvlm.yaml

Any setting can be changed by `key=value`, nested ones by dots: `trainer.max_steps=20 trainer.kl_coef=0.1`.
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
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that win over the file")
    arguments = parser.parse_args()

    with exit_cleanly():
        config = load_config(LanguageRunConfig, arguments.config, ["algorithm=ppo", *arguments.overrides])

        # Imported here, so that --help and a mistyped setting answer at once.
        from rewards.runs.summary import format_summary
        from rewards.trainers.language.run import run_language

        print(format_summary(run_language(config)))
        print(f"written to {config.output_dir}; curves: rewards curves {config.output_dir}")


if __name__ == "__main__":
    main()
