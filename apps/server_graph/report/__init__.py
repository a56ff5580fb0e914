"""What the server-graph study shows of a run; start with `page`."""

from trellis.apps import late

from .words import WORDING

__all__ = ["WORDING"]

__getattr__ = late(
    __name__,
    {
        "export_graphs": "page",
        "main_table": "named",
        "named_graphs": "named",
        "sections": "page",
    },
)
