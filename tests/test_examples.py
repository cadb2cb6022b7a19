"""The examples of all docstrings do what they say; those marked to be skipped need a checkpoint, a server or a GPU."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "rewards").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]
OF_EXTRAS = ("ray", "torchmetrics", "fastapi")
SKIPPED = "# doctest: +SKIP"


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name not in OF_EXTRAS:
            raise
        pytest.skip(f"{missing.name} is an extra, and not installed")
    results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert results.failed == 0
    assert results.attempted > 0 or SKIPPED in Path(module.__file__).read_text(encoding="utf-8")
