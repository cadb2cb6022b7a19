"""``rewards configs``: the settings that ship with the package, to look at and to change."""

from __future__ import annotations

import difflib
import re
from itertools import takewhile
from pathlib import Path

import typer
import yaml

from rewards.errors import InputError

app = typer.Typer(
    help="Settings that ship with the package: list them, or copy one to change it.", no_args_is_help=True
)


@app.command("list")
def list_configs() -> None:
    """Name every shipped config with the first sentence of its header."""
    for path in shipped():
        typer.echo(f"{path.stem:28} {_first_sentence(path.read_text(encoding='utf-8'))}")


def _first_sentence(text: str) -> str:
    header = takewhile(lambda line: line.startswith("#"), text.splitlines())
    words = " ".join(line.removeprefix("#").strip() for line in header)
    return re.split(r"(?<=[.])\s", words, maxsplit=1)[0]


@app.command()
def copy(
    name: str = typer.Argument(..., help="As `rewards configs list` names it."),
    out: Path | None = typer.Option(None, "--out", "-o", help="File to write [default: its name, in this folder]."),
) -> None:
    """Copy a shipped config; an existing file is never replaced."""
    path = find_config(name)
    out = out or Path(path.name)
    if out.exists():
        raise InputError(f"{out} is there already; choose another place with --out")
    out.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    typer.echo(f"{out}")


def shipped() -> list[Path]:
    """The shipped configs: in the package where it was installed, in the folder beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    folder = next((f for f in (package / "configs", package.parent / "configs") if f.is_dir()), None)
    return sorted(folder.glob("*.yaml")) if folder else []


def find_config(name: str) -> Path:
    """A file, or a shipped config by its name.

    Raises:
        InputError: Neither; names the nearest shipped one.
    """
    if Path(name).is_file():
        return Path(name)
    known = {path.stem: path for path in shipped()}
    wanted = Path(name).name.removesuffix(".yaml")
    if wanted in known and Path(name).name == name:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(f"{name!r} is neither a file nor one of the shipped configs (rewards configs list){hint}")


def sections(path: Path) -> set[str]:
    """The keys at the top of a config.

    Raises:
        InputError: The file is no YAML mapping.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping of keys to values, found {type(values).__name__}")
    return set(map(str, values))
