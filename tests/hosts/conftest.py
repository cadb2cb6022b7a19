"""Pictures with true captions, and a reward block for them."""

import pytest

from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.render import render


@pytest.fixture
def world(tmp_path):
    """Three pictures as files, their true captions, and the YAML of HarmonicEval by the shipped rater."""
    scenes = sample_scenes("test", 3, seed=0)
    paths = [str(tmp_path / f"{number}.png") for number in range(3)]
    for scene, path in zip(scenes, paths, strict=True):
        render(scene).save(path)
    config = tmp_path / "reward.yaml"
    config.write_text("judge: shapes-rater\ntask: captioning\n")
    return paths, [str(describe(scene)) for scene in scenes], str(config)


@pytest.fixture
def expected(world):
    from rewards.hosts.shared import resident_reward

    paths, captions, config = world
    return resident_reward(config).score(paths, captions)
