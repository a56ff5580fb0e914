"""What the joint-precision study shows of a run; start with `page`."""

from trellis.apps import late

from .words import WORDING

__all__ = ["WORDING"]

__getattr__ = late(
    __name__,
    {
        "export_graphs": "page",
        "kept_at_home": "export",
        "main_table": "named",
        "named_graphs": "named",
        "sections": "page",
        "write_graphs": "export",
    },
)
