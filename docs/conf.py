"""The documentation as a site: `sphinx-build -W -b html docs site`."""

project = "subscriber-connector"
author = "the authors of subscriber-connector"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
html_theme = "furo"
html_title = "subscriber-connector"
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
