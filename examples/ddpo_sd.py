"""Fine-tune a Stable Diffusion pipeline with DDPO on TIFA.

    python examples/ddpo_sd.py --config configs/ddpo_shapes.yaml
    python examples/ddpo_sd.py --config configs/ddpo_shapes.yaml trainer.seed=1 trainer.logdir=runs/seed1
    accelerate launch --num_processes 8 examples/ddpo_sd.py --config configs/ddpo_sd15.yaml

A run that was stopped goes on with ``trainer.resume_from=auto``. Curves and report: ``rewards curves RUN``.
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
        from rewards.trainers.diffusion.run import DDPORunConfig, run_ddpo, summary_table

        config = load_config(DDPORunConfig, arguments.config, arguments.overrides)
        print(summary_table(run_ddpo(config)))


if __name__ == "__main__":
    main()
