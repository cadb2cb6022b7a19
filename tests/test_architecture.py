"""The house: which room may use which, no circles, and how much of it goes without a type."""

import ast
import itertools
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (
    {"_version", "errors"},
    {"databases", "images", "runs", "tables", "trl_inputs"},
    {"scores", "calling", "reward", "functions", "combined"},
    {"judges"},
    {"harmonic", "rubric", "tifa"},
    {"shapes"},
    {"build"},
    {"generation", "hosts", "humans", "jobs", "report"},
    {"audit"},
    {"trainers"},
    {"preflight", "rerank"},
    {"demo"},
    {"cli"},
)
"""From the ground up: a room uses its own layer and those below."""


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted((ROOT / "rewards").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(known: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Every import inside the package, those inside functions and for type checkers included."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name, tree in known.items():
        for node in ast.walk(tree):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
            edges[name] |= {target for target in targets if target in known and target not in (name, "rewards")}
    return edges


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "rewards"


def test_no_room_uses_what_stands_above_it():
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    outside = {"rewards", "__main__"}  # the front door, which shows all rooms
    known = modules()
    assert {room(name) for name in known} - outside == set(level), "a room without a layer: give it one"
    upward = [
        f"{name} uses {target}"
        for name, targets in imports(known).items()
        for target in targets
        if room(name) not in outside and level[room(target)] > level[room(name)]
    ]
    assert upward == []


def test_no_import_circle():
    edges = imports(modules())
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []
    count = itertools.count()

    def visit(module: str) -> None:  # Tarjan's strongly connected components
        number[module] = low[module] = next(count)
        stack.append(module)
        for target in edges[module]:
            if target not in number:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], number[target])
        if low[module] == number[module]:
            component = []
            while not component or component[-1] != module:
                component.append(stack.pop())
            if len(component) > 1:
                circles.append(sorted(component))

    for module in list(edges):
        if module not in number:
            visit(module)
    assert circles == []


def test_no_room_is_a_fifth_of_the_house():
    lines: dict[str, int] = defaultdict(int)
    for path in (ROOT / "rewards").rglob("*.py"):
        parts = path.relative_to(ROOT / "rewards").parts
        # trainers holds two rooms of its own: models that draw and models that write
        lines["/".join(parts[:2]) if parts[0] == "trainers" else parts[0]] += path.read_text("utf-8").count("\n")
    assert max(lines.values()) < 0.2 * sum(lines.values()), dict(lines)


@pytest.mark.parametrize("folder", sorted({p.parent for p in (ROOT / "rewards").rglob("*.py")}), ids=str)
def test_every_room_says_what_is_where(folder):
    if (folder / "__init__.py").exists():
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))


def test_public_names_have_docstrings():
    bare = [
        f"{name}.{node.name}"
        for name, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert bare == []
