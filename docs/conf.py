"""How Sphinx makes a site of these documents: ``sphinx-build -W docs docs/_build``, with the extra ``docs``.

The documents stay plain Markdown; index.md is the README with the list of documents. ``-W`` fails on broken links.
"""

project = "fairseq-poolingformer"
author = "The fairseq-poolingformer authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # as GitHub makes them
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
