"""What the joint-precision study shows of a run; start with `page`."""

from .export import kept_at_home, write_graphs
from .named import main_table, named_graphs
from .page import WORDING, export_graphs, sections

__all__ = [
    "WORDING",
    "export_graphs",
    "kept_at_home",
    "main_table",
    "named_graphs",
    "sections",
    "write_graphs",
]
