"""The shipped configs by name."""

import pytest
from typer.testing import CliRunner

from rewards.cli.app import app
from rewards.cli.configs import find_config, shipped
from rewards.errors import InputError


def test_every_config_is_listed_with_what_it_is_for():
    result = CliRunner().invoke(app, ["configs", "list"])
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in result.output.splitlines()}
    assert set(lines) == {path.stem for path in shipped()} >= {"grpo_shapes", "ddpo_shapes"}
    assert lines["ddpo_shapes"].startswith("DDPO with TIFA in the packaged shapes world")


def test_a_copy_is_the_same_and_replaces_nothing(tmp_path):
    out = tmp_path / "mine.yaml"
    result = CliRunner().invoke(app, ["configs", "copy", "grpo_shapes", "--out", str(out)])
    assert result.exit_code == 0 and result.output.strip() == str(out)
    assert out.read_text() == find_config("grpo_shapes").read_text()
    out.write_text("changed")
    again = CliRunner().invoke(app, ["configs", "copy", "grpo_shapes", "--out", str(out)])
    assert isinstance(again.exception, InputError) and out.read_text() == "changed"


def test_a_file_comes_first_and_a_wrong_name_is_answered_with_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo_shapes").write_text("mine")
    assert find_config("grpo_shapes").resolve() == tmp_path / "grpo_shapes"
    assert find_config("ppo_shapes.yaml").name == "ppo_shapes.yaml"
    with pytest.raises(InputError, match="did you mean grpo_shapes"):
        find_config("grpo_shape")
    with pytest.raises(InputError, match="neither a file"):
        find_config("elsewhere/grpo_shapes.yaml")


@pytest.mark.parametrize(
    "config, trainer", [("grpo_shapes", "language.run.run_language"), ("nft_shapes", "diffusion.run.run_diffusion")]
)
def test_train_finds_the_trainer_and_settings_on_the_command_line_win(config, trainer, monkeypatch):
    seen = []

    class Stopped(Exception):
        pass

    def stop(settings):
        seen.append(settings)
        raise Stopped

    monkeypatch.setattr(f"rewards.trainers.{trainer}", stop)
    result = CliRunner().invoke(app, ["train", config, "seed=7", "output_dir=runs/mine"])
    assert isinstance(result.exception, Stopped)
    assert (seen[0].seed, seen[0].output_dir) == (7, "runs/mine")


def test_train_refuses_what_is_no_config_of_a_trainer(tmp_path):
    refused = CliRunner().invoke(app, ["train", "best_of_n_shapes"])
    assert "rewards best-of-n --config" in str(refused.exception)
    mistyped = CliRunner().invoke(app, ["train", "grpo_shapes", "sed=7"])
    assert "did you mean 'seed'" in str(mistyped.exception)
