"""What the gromov-wasserstein study shows of a run; start with `page`."""

from .export import write_on_request
from .named import main_table, named_graphs
from .page import WORDING, export_graphs, sections

__all__ = ["WORDING", "export_graphs", "main_table", "named_graphs", "sections", "write_on_request"]
