"""Fine-tune a Stable Diffusion pipeline with DDPO on TIFA.

    python examples/ddpo_sd.py --config configs/ddpo_shapes.yaml
    python examples/ddpo_sd.py --config configs/ddpo_shapes.yaml seed=1 output_dir=runs/seed1
    accelerate launch --num_processes 8 examples/ddpo_sd.py --config configs/ddpo_sd15.yaml

A run that was stopped goes on with `resume=true`. Curves and report: `rewards curves RUN`.
"""

import argparse

from rewards.errors import exit_cleanly


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="a YAML file such as configs/ddpo_shapes.yaml")
    parser.add_argument("overrides", nargs="*", help="key=value settings that win over the file")
    arguments = parser.parse_args()
    with exit_cleanly():
        from rewards.runs.config import load_config
        from rewards.trainers.diffusion.run import run_diffusion
        from rewards.trainers.diffusion.settings import DiffusionRunConfig
        from rewards.trainers.diffusion.summary import summary_table

        config = load_config(DiffusionRunConfig, arguments.config, arguments.overrides)
        print(summary_table(run_diffusion(config)))


if __name__ == "__main__":
    main()
