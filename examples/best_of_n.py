"""Sample n candidates for every prompt, choose the best by a readable reward, and see what choosing gains.

    python examples/best_of_n.py --config configs/best_of_n_shapes.yaml
    python examples/best_of_n.py --config configs/best_of_n_shapes_pictures.yaml
    python examples/best_of_n.py --config configs/best_of_n_qwen.yaml generate.prompts=pictures.jsonl out=runs/mine

A run that was stopped goes on when started again. Candidates that exist already are ranked by `rewards rerank`; with
`rewards best-of-n --config ... --engine ray --address auto` a Ray cluster ranks what this machine sampled.
"""

import argparse

from rewards.errors import exit_cleanly


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="a YAML file such as configs/best_of_n_shapes.yaml")
    parser.add_argument("overrides", nargs="*", help="key=value settings that win over the file")
    arguments = parser.parse_args()
    with exit_cleanly():
        from rewards.rerank.run import BestOfNSettings, run_best_of_n
        from rewards.runs.config import load_config

        settings = load_config(BestOfNSettings, arguments.config, arguments.overrides)
        summary = run_best_of_n(settings)
        print(f"{summary.ranked} prompts, {summary.candidates} candidates, {summary.abstained} abstentions")
        print(f"mean score of the first candidate {summary.mean_first}, of the best {summary.mean_best}")
        print(f"ranked rows, curves and problems are in {settings.out}/ranking")


if __name__ == "__main__":
    main()
