"""A function of the same name with another body is another reward; the same text is the same in every process."""

import functools
import json
import linecache
import os
import subprocess
import sys

import pytest

from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.runs.code import code_hash
from rewards.runs.identity import check_same

BODY = "def reward(completions, **columns):\n    return [float(len(text)) for text in completions]\n"


def made(source: str, tmp_path=None, name: str = "reward"):
    """The function that a source defines; with a folder it has a file, without one only its bytecode."""
    file = "<typed>"
    if tmp_path is not None:
        file = str(tmp_path / "rewards_of_mine.py")
        (tmp_path / "rewards_of_mine.py").write_text(source)
        linecache.clearcache()
    names: dict = {"functools": functools, "__name__": "mine"}
    exec(compile(source, file, "exec"), names)
    return names[name]


def wrap(body: str) -> str:
    return (
        f"def wrapper(f):\n    @functools.wraps(f)\n    def g(completions, **c):\n        return {body}\n    return g\n"
    )


OTHERS = {
    "a constant": (BODY, BODY.replace("float(len(text))", "2 * float(len(text))"), "reward"),
    "a name": (BODY, BODY.replace("float(", "int("), "reward"),
    "a lambda within": (BODY, BODY.replace("float(len(text))", "(lambda t: 1.0)(text)"), "reward"),
    "a set": (BODY.replace("text)", "text in {'a', 'b'})"), BODY.replace("text)", "text in {'a', 'c'})"), "reward"),
    "a decorator": tuple(
        f"{wrap(body)}@wrapper\n{BODY}" for body in ("f(completions)", "[-x for x in f(completions)]")
    ) + ("reward",),
    "what is decorated": tuple(
        f"{wrap('f(completions)')}@wrapper\n{body}" for body in (BODY, BODY.replace("float", "int"))
    ) + ("reward",),
    "a default": tuple(f"W = {w}\ndef reward(completions, w=W):\n    return [w]\n" for w in (1, 2)) + ("reward",),
    "a keyword default": tuple(f"W = {w}\ndef reward(completions, *, w=W):\n    return [w]\n" for w in (1, 2)) + (
        "reward",),
    "a closure": tuple(f"def make(w):\n    return lambda completions: [w]\nreward = make({w})\n" for w in (1, 2)) + (
        "reward",),
    "one of two lambdas on a line": ("f, g = lambda completions: [1.0], lambda completions: [2.0]\n",) * 2 + ("fg",),
    "a partial": tuple(
        f"def f(completions, w):\n    return [w]\nreward = functools.partial(f, w={w})\n" for w in (1, 2)) + ("reward",),
    "a method": tuple(
        f"class R:\n    def score(self, completions):\n        return [{w}]\nreward = R().score\n" for w in (1, 2)) + (
        "reward",),
    "an object": tuple(
        f"class R:\n    def __call__(self, completions):\n        return [{w}]\nreward = R()\n" for w in (1, 2)) + (
        "reward",),
}  # fmt: skip


@pytest.mark.parametrize("with_file", [True, False])
@pytest.mark.parametrize("kind", OTHERS)
def test_another_body_is_another_reward(kind, with_file, tmp_path):
    before, after, name = OTHERS[kind]
    folder = tmp_path if with_file else None
    names = ("f", "g") if name == "fg" else (name, name)
    first = FunctionReward(made(before, folder, names[0]), "mine", "mine:reward").identity()
    again = FunctionReward(made(before, folder, names[0]), "mine", "mine:reward").identity()
    other = FunctionReward(made(after, folder, names[1]), "mine", "mine:reward").identity()
    assert first == again
    with pytest.raises(InputError, match="code was"):
        check_same(first, other, "the run")


def test_functions_that_hold_each_other_end():
    def first(completions):
        return second(completions)

    def second(completions):
        return first(completions)

    assert code_hash(first) == code_hash(first) != code_hash(second)


def test_built_in_and_strange_callables_have_one():
    assert code_hash(len) != ""  # type: ignore[arg-type]
    assert code_hash(functools.partial(max, [object()])) == code_hash(functools.partial(max, [object()]))


def test_it_is_the_same_in_every_process(tmp_path):
    """Sets are ordered by a seed of the process, and addresses differ."""
    script = (
        "from tests.runs.test_code import OTHERS, made\nfrom rewards.runs.code import code_hash\nimport json\n"
        "print(json.dumps({k: code_hash(made(v[0], None, v[2][:1] if v[2] == 'fg' else v[2])) "
        "for k, v in OTHERS.items()}))"
    )
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", script], check=True, capture_output=True, text=True,
                env=os.environ | {"PYTHONHASHSEED": seed},
            ).stdout
        )
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1] and len(set(found[0].values())) > 8
