"""The two graph convolutions and the pooling of `gnn`, in torch and nothing else.

    S = D^-1/2 (A + I) D^-1/2        `norm`: its entries, an edge each
    GCN :  S (x W') + b              (Kipf & Welling 2017)
    GIN :  mlp(A x + x)              (Xu et al. 2019)

torch-geometric has the same layers, to the bit (a test says so), and takes twice as long to import
as torch itself: on a device that is paid with every message that trains or embeds. Here S is made
once for all layers of a model, too.

Weights are drawn twice, by torch's layers and again here: so are torch-geometric's, and a seed has
the weights that it has with those.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def added(rows: Tensor, place: Tensor, count: int) -> Tensor:
    """Return the sums (count, h) of those rows (n, h) that have the same place (n,)."""
    made = rows.new_zeros(count, *rows.shape[1:])
    where = place if rows.dim() == 1 else place.view(-1, 1).expand_as(rows)
    return made.scatter_add_(0, where, rows)


def averaged(rows: Tensor, place: Tensor, count: int) -> Tensor:
    """Return the means (count, h) of those rows (n, h) that have the same place (n,)."""
    size = added(rows.new_ones(len(rows)), place, count).clamp(min=1)
    return added(rows, place, count) / size.view(-1, 1)


def norm(edge_index: Tensor, nodes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return where the entries of S stand, (2, 2 E + n), and what they are (2 E + n,)."""
    loops = torch.arange(nodes).expand(2, nodes)
    places = torch.cat([edge_index, loops], dim=1)
    degree = added(torch.ones(places.shape[1], dtype=dtype), places[1], nodes)
    scale = degree.pow(-0.5)  # a loop each: no degree is 0
    return places, scale[places[0]] * scale[places[1]]


class GraphConvolution(nn.Module):
    """S (x W') + b."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width, out, bias=False)
        bound = math.sqrt(6.0 / (width + out))  # Glorot & Bengio 2010
        nn.init.uniform_(self.lin.weight, -bound, bound)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor, places: Tensor, entries: Tensor) -> Tensor:
        """Return the rows (n, out) of ``x`` (n, width); S as `norm` has it."""
        sent = entries.view(-1, 1) * self.lin(x).index_select(0, places[0])
        return added(sent, places[1], len(x)) + self.bias


class Isomorphism(nn.Module):
    """mlp(A x + x)."""

    def __init__(self, mlp: nn.Sequential) -> None:
        super().__init__()
        self.nn = mlp
        for layer in mlp:
            if isinstance(layer, nn.Linear | nn.LayerNorm):
                layer.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the rows of ``x`` (n, width), each with those of its neighbours."""
        sent = x.index_select(0, edge_index[0])
        made: Tensor = self.nn(added(sent, edge_index[1], len(x)) + x)
        return made
