"""The documentation as a site: which pages it has, in which order, and where their links lead.

``docs/hooks.py`` hands all of it to mkdocs, and is the only file that knows mkdocs. `sources` finds
the pages, in ``docs/`` and beside the code; `navigation` puts them in order; `links` makes links of
the repository links of the site; `notebooks` turns notebooks into Markdown.
"""
