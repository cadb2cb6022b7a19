"""The package from outside: light to import, and one clear line where the user made a mistake."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROLOGUE = "from rewards.errors import exit_cleanly\n"
ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'rewards'; from rewards.cli import main; main()"]


def run(*arguments, command=COMMAND, cwd=None, **options):
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=300, **options
    )


def cpu_seconds(arguments):
    """The least of three runs: what the command itself costs, not what else the machine does."""
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs)


def test_import_is_light():
    program = "import sys, rewards; assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    assert cpu_seconds([sys.executable, "-c", program]) < 0.3


def test_help_is_light():
    program = (
        "import sys\nsys.argv = ['rewards', '--help']\nfrom rewards.cli import main\ntry:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    assert cpu_seconds([sys.executable, "-c", program]) < 0.6


def test_every_public_name_loads():
    program = "import rewards\nfor name in rewards.__all__: getattr(rewards, name)"
    assert run(command=[sys.executable, "-c", program]).returncode == 0


def one_clear_line(result, *expected):
    """Non-zero, no traceback, one line on stderr that names what was wrong."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert result.returncode not in (0, None)
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    for text in expected:
        assert text in lines[0]


@pytest.mark.parametrize("script", ["grpo_vlm.py", "ppo_vlm.py", "ddpo_sd.py"])
def test_an_unknown_config_key(script, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("learnin_rate: 3\n")
    one_clear_line(
        run(ROOT / "examples" / script, "--config", config, command=[sys.executable], cwd=tmp_path), "learnin_rate"
    )


def test_a_missing_config(tmp_path):
    result = run(ROOT / "examples" / "ddpo_sd.py", "--config", "absent.yaml", command=[sys.executable], cwd=tmp_path)
    one_clear_line(result, "absent.yaml")


def test_an_unknown_judge(tmp_path):
    program = PROLOGUE + "from rewards import load_judge\nwith exit_cleanly(): load_judge('no-such-judge')"
    one_clear_line(run(command=[sys.executable, "-c", program]), "no-such-judge")


def test_a_missing_picture():
    program = PROLOGUE + "from rewards.images import to_pil\nwith exit_cleanly(): to_pil('absent.png', 3)"
    one_clear_line(run(command=[sys.executable, "-c", program]), "absent.png", "3")


def test_the_demo_does_not_overwrite(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    one_clear_line(run("demo", "--out", tmp_path), "not empty")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk(tmp_path):
    """Every file is limited to 4 kB, which the page exceeds: the same OSError as a disk without room."""
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "metrics.jsonl").write_text('{"step": 1, "time": 0, "rewards/TIFA/overall/mean": 0.5}\n')

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path / "mpl")}
    one_clear_line(run("curves", run_folder, preexec_fn=limit, env=environment), "")
