"""The site: Sphinx reads the Markdown pages where they lie. `make site` builds it; docs/decisions/0045 says why so."""

import inspect
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import MockFinder
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.inspect import stringify_signature

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import site_pages

# Signatures and docstrings are Paceline's own. Stand-ins take the places of TensorFlow and Keras: half a gigabyte.
# What replaces or checks attributes of Keras when it is imported has nothing to do here.
CHECKED = ("paceline.fit.compat", "paceline.pipeline.compat")
sys.meta_path.insert(0, MockFinder(["keras", "tensorflow", "paceline.seams.install", *CHECKED]))
import paceline

project = "Paceline"
author = "the authors of Paceline"
release = version = paceline.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "benchmarks/README.md",
    "benchmarks/*/README.md",
    "docs/**/*.md",
    "docs/**/*.rst",
    "examples/*.md",
    "examples/**/*.md",
]
exclude_patterns = [".*", "build", "dist", "src", "tests", "**/.*", "**/__pycache__"]

nitpicky = True
# Types in signatures, and errors: most have no page.
nitpick_ignore_regex = [("py:(class|exc)", ".*")]
myst_heading_anchors = 6
highlight_language = "none"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"Paceline {release}"
html_theme_options = {"navigation_with_keys": False}
html_additional_pages = {"index": "to_start.html"}
templates_path = ["_site"]
html_favicon = "_site/favicon.svg"
html_search_scorer = str(HERE / "_site" / "search_scorer.js")
html_copy_source = False
html_show_copyright = False


PICTURES = "https://raw.githubusercontent.com/paceline/paceline/main/docs/pictures"
"""Where the README has them for the package index."""


class LinksToApi(SphinxPostTransform):
    """`paceline.rank()` in the text of any page leads to its description."""

    default_priority = 5  # before references are resolved

    def run(self, **kwargs: Any) -> None:
        """For each literal that is a public name."""
        names = self.env.domains.python_domain.objects
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext().partition("(")[0].lstrip("@")
            if name in names and not _is_within(literal, nodes.reference | addnodes.pending_xref | nodes.title):
                reference = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=name, refdoc=self.env.docname, refexplicit=True
                )
                literal.replace_self(reference)
                reference += literal


def _is_within(node: Any, kinds: Any) -> bool:
    """Whether a node is in one of these kinds, at any depth: a link in a link would be one without a text."""
    while (node := node.parent) is not None:
        if isinstance(node, kinds):
            return True
    return False


def _add_contents(app: Sphinx, docname: str, content: list[str]) -> None:
    """The pages that an index page names become its part of the navigation; pictures of the README are local ones."""
    content[0] = content[0].replace(PICTURES, "docs/pictures")
    content[0] += site_pages.toctree(Path(app.srcdir), docname)


def _as_rst(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    lines[:] = site_pages.as_rst(lines)


def _own_signature(
    app: Sphinx, what: str, name: str, found: Any, options: object, arguments: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """What a class takes whose base is a stand-in of TensorFlow's or Keras's, which takes anything."""
    if what != "class" or not (arguments or "").startswith("(*args"):
        return None
    parameters = list(inspect.signature(found.__init__).parameters.values())[1:]
    return stringify_signature(inspect.Signature(parameters), unqualified_typehints=True), returned


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    site_pages.write_error_pages(HERE)
    site_pages.write_api_pages(HERE)
    app.connect("source-read", _add_contents)
    app.connect("autodoc-process-docstring", _as_rst, priority=100)  # before Napoleon reads the sections
    app.connect("autodoc-process-signature", _own_signature)
    app.add_post_transform(LinksToApi)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
