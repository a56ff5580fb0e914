"""What the consensus-graph study shows of a run; start with `page`."""

from .page import export_graphs, sections

__all__ = ["export_graphs", "sections"]
