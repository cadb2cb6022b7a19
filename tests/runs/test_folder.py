"""One rule by which runs begin, go on or are refused; nothing is written where they are refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rewards.errors import InputError
from rewards.runs.folder import RunFolder, begin_run
from rewards.runs.locks import locked

IDENTITY = {"settings": {"seed": 0, "steps": 10}}


def a_run(tmp_path: Path, *steps: int) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    assert begin_run(folder, IDENTITY) is None
    folder.metrics.write_text('{"step": 0}\n')
    for step in steps:
        checkpoint = folder.checkpoints / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.json").write_text("{}")
    return folder


def content(folder: RunFolder) -> dict[str, bytes]:
    files = (path for path in folder.path.rglob("*") if path.is_file())
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in files}


@pytest.mark.parametrize("resume", [False, True, "auto"])
def test_a_new_folder_begins_a_run(tmp_path, resume):
    folder = RunFolder(tmp_path / "a" / "run")
    assert begin_run(folder, IDENTITY, resume=resume) is None
    assert json.loads(folder.identity.read_text()) == IDENTITY


def test_a_held_folder_is_refused_and_left_alone(tmp_path):
    folder = a_run(tmp_path, 5)
    before = content(folder)
    with pytest.raises(InputError, match="already holds a run: set resume=true"):
        begin_run(folder, IDENTITY)
    with pytest.raises(InputError, match=r"settings\.seed was 0 and is now 1"):
        begin_run(folder, {"settings": {"seed": 1, "steps": 10}}, resume=True)
    with pytest.raises(InputError, match="set one of them"):
        begin_run(folder, IDENTITY, resume=True, overwrite=True)
    assert content(folder) == before


@pytest.mark.parametrize("resume", [True, "auto"])
def test_a_run_goes_on_from_its_newest_whole_checkpoint(tmp_path, resume):
    folder = a_run(tmp_path, 2, 9, 10)
    (folder.checkpoints / "checkpoint-10" / "state.json").write_text('{"step": 1')  # killed while it was written
    (folder.checkpoints / "checkpoint-11").mkdir()
    (folder.checkpoints / "checkpoint-best").mkdir()
    assert begin_run(folder, IDENTITY, resume=resume) == folder.checkpoints / "checkpoint-9"
    assert folder.metrics.exists()


def test_what_may_change_is_kept_as_it_is_now(tmp_path):
    folder = a_run(tmp_path, 5)
    more = {"settings": {"seed": 0, "steps": 20}}
    assert begin_run(folder, more, resume=True, may_change=["settings.steps"]) == folder.checkpoints / "checkpoint-5"
    assert json.loads(folder.identity.read_text()) == more


def test_a_run_without_a_checkpoint_is_the_same_run_from_the_start(tmp_path):
    folder = a_run(tmp_path)
    assert begin_run(folder, IDENTITY, resume=True) is None
    with pytest.raises(InputError, match="begun otherwise"):
        begin_run(folder, {}, resume=True)


def test_a_run_of_unknown_identity_is_not_continued(tmp_path):
    folder = a_run(tmp_path, 5)
    folder.identity.unlink()
    with pytest.raises(InputError, match=r"without identity\.json"):
        begin_run(folder, IDENTITY, resume=True)


def test_overwriting_removes_the_run_and_nothing_else(tmp_path):
    folder = a_run(tmp_path, 5)
    (folder.path / "samples").mkdir()
    (folder.path / "samples" / "a.png").write_bytes(b"")
    (folder.path / "notes.txt").write_text("mine")
    assert begin_run(folder, {"other": 1}, overwrite=True) is None
    assert sorted(content(folder)) == ["identity.json", "notes.txt"]


def test_other_processes_learn_of_the_checkpoint_and_write_nothing(tmp_path):
    folder = a_run(tmp_path, 5)
    before = content(folder)
    assert begin_run(folder, IDENTITY, resume=True, main=False) == folder.checkpoints / "checkpoint-5"
    assert begin_run(folder, IDENTITY, main=False) is None
    assert begin_run(folder, IDENTITY, overwrite=True, main=False) is None
    assert content(folder) == before


HOLDS = "import sys, time; from rewards.runs.folder import RunFolder; from pathlib import Path\n"
HOLDS += "lock = RunFolder(Path(sys.argv[1])).lock(); print('held', flush=True); time.sleep(600)"


def test_a_folder_belongs_to_one_process_until_it_ends_however_it_ends(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(folder.path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=r"^another process is working on .*run; wait for it"):
            folder.lock()
        other.send_signal(signal.SIGKILL)
    lock, again = folder.lock(), folder.lock()  # the trainer, and the run that writes its summary
    assert not folder.holds_a_run() and begin_run(folder, IDENTITY) is None
    again.release()
    assert lock.is_locked
    folder.clear()
    lock.release()
    locked(folder.path, ".lock").release()
