"""Rewards for the tests of jobs; importable by name in worker processes."""


def fails_on_x(prompts, completions, **columns):
    """Raises where one of the texts is x."""
    if "x" in completions:
        raise RuntimeError("no x")
    return [1.0] * len(completions)
