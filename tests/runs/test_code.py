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


def made(source: str, tmp_path=None):
    """The function that a source defines; with a folder it has a file, without one only its bytecode."""
    file = "<typed>"
    if tmp_path is not None:
        file = str(tmp_path / "rewards_of_mine.py")
        (tmp_path / "rewards_of_mine.py").write_text(source)
        linecache.clearcache()
    names: dict = {"functools": functools, "__name__": "mine"}
    exec(compile(source, file, "exec"), names)
    return names["reward"]


WRAPPED = (
    "def wrapper(f):\n    @functools.wraps(f)\n    def g(completions, **c):\n        return {wrap}\n    return g\n"
    "@wrapper\ndef reward(completions):\n    return {inner}\n"
)


def two(template: str, *values: object) -> tuple[str, str]:
    """A source with each of two values in the place of W."""
    before, after = (template.replace("W", str(value)) for value in values or (1, 2))
    return before, after


OTHERS = {
    "a constant": two(BODY.replace("float(", "W * float(")),
    "a name": two(BODY.replace("float(", "W("), "float", "int"),
    "a lambda within": two(BODY.replace("float(len(text))", "(lambda t: W)(text)")),
    "a set": two(BODY.replace("len(text)", "text in {'a', 'W'}"), "b", "c"),
    "a decorator": two(WRAPPED.format(wrap="W", inner="completions"), "f(completions)", "[-x for x in f(completions)]"),
    "what is decorated": two(WRAPPED.format(wrap="f(completions)", inner="[W]")),
    "a default": two("V = W\ndef reward(completions, w=V):\n    return [w]\n"),
    "a keyword default": two("V = W\ndef reward(completions, *, w=V):\n    return [w]\n"),
    "a closure": two("def make(w):\n    return lambda completions: [w]\nreward = make(W)\n"),
    "one of two lambdas on a line": two("f, g = lambda completions: 1, lambda completions: 2\nreward = W\n", "f", "g"),
    "a partial": two("def f(completions, w):\n    return [w]\nreward = functools.partial(f, w=W)\n"),
    "a method": two("class R:\n    def score(self, completions):\n        return [W]\nreward = R().score\n"),
    "an object": two("class R:\n    def __call__(self, completions):\n        return [W]\nreward = R()\n"),
}


@pytest.mark.parametrize("with_file", [True, False])
@pytest.mark.parametrize("kind", OTHERS)
def test_another_body_is_another_reward(kind, with_file, tmp_path):
    before, after = OTHERS[kind]
    folder = tmp_path if with_file else None
    first, again, other = (
        FunctionReward(made(source, folder), "mine", "mine:reward").identity() for source in (before, before, after)
    )
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
        "print(json.dumps({kind: code_hash(made(before)) for kind, (before, _) in OTHERS.items()}))"
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
