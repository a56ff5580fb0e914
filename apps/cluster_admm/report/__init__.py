"""What the cluster-admm study shows of a run; start with `page`."""

from .page import WORDING, export_graphs, sections

__all__ = ["WORDING", "export_graphs", "sections"]
