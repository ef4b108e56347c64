"""Sphinx: Markdown pages, with the parts that generate.py makes from the code."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate

from stormpetrel import __version__

project = "Stormpetrel"
author = "The Stormpetrel developers"
version = release = __version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = False
smartquotes = False  # "--live" must stay two dashes: it is to be pasted
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Stormpetrel {release}"
html_show_copyright = False
html_copy_source = False


def _expand(_app, _name, content):
    content[0] = generate.expand(content[0])


def _always_outdated(_app, env, _added, _changed, _removed):
    """Pages with generated parts depend on the code, which Sphinx does not watch."""
    return [name for name in env.found_docs if generate.MARK.search(Path(env.doc2path(name)).read_text(encoding="utf-8"))]


def setup(app):
    app.connect("source-read", _expand)
    app.connect("env-get-outdated", _always_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
