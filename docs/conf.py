"""Settings of the site: Sphinx with furo and MyST.

Sphinx because the docstrings are the reference, and it checks every reference in them; furo reads well on a phone and
needs nothing from outside; MyST because guides are easier to write and to read as Markdown.
"""

import contextlib
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import generate  # noqa: E402

with contextlib.suppress(ImportError):
    import fastapi  # noqa: F401 - autodoc imports with TYPE_CHECKING set, under which pydantic cannot build models

from rewards import __version__  # noqa: E402

project = "rewards"
release = __version__
copyright = "the rewards authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_mock_imports = ["ray"]  # an extra that the documents are built without
exclude_patterns = ["_build", "guides/hosts_head.md"]
html_theme = "furo"
html_title = f"rewards {__version__}"
html_static_path = ["../examples/pictures"]
html_show_sphinx = False
# A short name of a type that two rooms have is shown without a link; nothing is wrong with it.
suppress_warnings = ["ref.python"]
default_role = "code"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": False}
napoleon_use_ivar = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"


def show_tables(app, what, name, obj, options, lines):
    """Tables in docstrings are written for whoever reads the code; the site shows them as they are."""
    shown = []
    for line in lines:
        if line.startswith("|"):
            if not (shown and shown[-1].startswith("    |")):
                shown += ["::", ""]
            line = f"    {line}"
        elif shown and shown[-1].startswith("    |"):
            shown.append("")
        shown.append(line)
    lines[:] = shown


def setup(app):
    app.connect("autodoc-process-docstring", show_tables)
    generate.write_all(Path(__file__).resolve().parent)
