"""The prompts of a run, and the questions that come with them."""

from __future__ import annotations

import random
from pathlib import Path

from rewards.errors import InputError
from rewards.shapes.language import meaning
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.tifa.questions.prompt_files import read_prompts
from rewards.tifa.questions.question import read_questions
from rewards.tifa.store.store import QuestionStore
from rewards.trainers.diffusion.plan import Prompt
from rewards.trainers.diffusion.settings import SHAPES, DiffusionRunConfig


def split_of_run(config: DiffusionRunConfig) -> tuple[list[str], list[Prompt], Path | None]:
    """Training prompts, held-out prompts, and the question store that knows them (None where there is none).

    Held-out prompts of the shapes world say which of them mean the same: those are not independent of each other.

    Raises:
        InputError: A file that holds no prompts, or none that is left to train on.
        OSError: A file cannot be read.
    """
    wanted = config.num_train_prompts
    if config.prompts == SHAPES:
        train = generator_prompts("train", wanted or 2000, config.prompt_seed)
        held_out = generator_prompts("test", config.num_eval_prompts, config.prompt_seed)
        path = _own_store(config)
        question_store(path, [*train, *held_out])
        return train, [(prompt, {"cluster": meaning(prompt)}) for prompt in held_out], path
    prompts, store = _from_file(Path(config.prompts), config)
    random.Random(config.prompt_seed).shuffle(prompts)
    held_out, train = prompts[: config.num_eval_prompts], prompts[config.num_eval_prompts :]
    if not train:
        raise InputError(
            f"prompts {config.prompts!r} holds {len(prompts)} prompts, of which num_eval_prompts="
            f"{config.num_eval_prompts} are held out: none is left to train on"
        )
    return train[:wanted], list(held_out), store


def _from_file(path: Path, config: DiffusionRunConfig) -> tuple[list[str], Path | None]:
    """Different prompts in sorted order, and where their questions are."""
    if path.suffix == ".txt":
        return sorted({prompt.text.strip() for prompt in read_prompts(path)}), None
    if path.suffix in (".sqlite", ".db"):
        store, place = QuestionStore(path, create=False), path
    else:
        questions = read_questions(path)
        place = _own_store(config)
        store = QuestionStore(place)
        store.add(questions, {"source": str(path)}, on_conflict="keep")
    return sorted({prompt for _, prompt in store.prompts()}), place


def _own_store(config: DiffusionRunConfig) -> Path:
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "questions.sqlite"
