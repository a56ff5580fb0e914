"""What the consensus-graph study shows of a run; start with `page`."""

from apps.pages.wording import Wording

from .export import kept_at_home, write_graphs
from .named import main_table, named_graphs
from .page import export_graphs, sections

WORDING = Wording(
    labels={
        "noise": "noise of the consensus, over its mean entry",
        "held-out": "held-out signals that the consensus explains",
        "held-out-noise": "noise in that share",
        "helped": "clients whom the consensus helped",
        "helped-noise": "noise in that share",
        "alone-mcc": "MCC, had clients learnt alone",
    },
    measure="mcc",
)

__all__ = [
    "WORDING",
    "export_graphs",
    "kept_at_home",
    "main_table",
    "named_graphs",
    "sections",
    "write_graphs",
]
