"""Layers and optimisers have the bits of torch-geometric's and torch's own, which are heavier."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
peer = pytest.importorskip("torch_geometric.nn")

from trellis.apps.gromov_wasserstein.model.adam import Adam, Descent  # noqa: E402
from trellis.apps.gromov_wasserstein.model.gnn import _mlp  # noqa: E402
from trellis.apps.gromov_wasserstein.model.layers import (  # noqa: E402
    GraphConvolution,
    Isomorphism,
    added,
    averaged,
    norm,
)


def random_graph(nodes: int, seed: int):
    """Return features and edges in both directions; the last node has none."""
    rng = np.random.default_rng(seed)
    u, v = np.triu_indices(nodes - 1, 1)
    chosen = rng.random(u.size) < 0.3
    edges = np.stack([u[chosen], v[chosen]])
    x = torch.tensor(rng.standard_normal((nodes, 5)), requires_grad=True)
    return x, torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1))


def drawn(make):
    torch.manual_seed(11)
    made = make().double()
    return made, torch.rand(3)  # what the generator gives next, as well


def same(mine, theirs, *, grads: bool = False):
    mine, theirs = dict(mine.named_parameters()), dict(theirs.named_parameters())
    assert list(mine) == list(theirs)
    for name, p in mine.items():
        q = theirs[name]
        assert torch.equal(p.grad, q.grad) if grads else torch.equal(p, q), name


def answers(model, x, *graph):
    out = model(x, *graph)
    # Not a plain sum, whose gradients are all ones.
    (out * torch.linspace(-1.0, 2.0, out.numel()).double().reshape(out.shape)).sum().backward()
    grad, x.grad = x.grad, None
    return out, grad


@pytest.mark.parametrize("nodes", [2, 9, 60])
def test_a_convolution_is_torch_geometric_s(nodes):
    x, edges = random_graph(nodes, nodes)
    mine, mine_next = drawn(lambda: GraphConvolution(5, 16))
    theirs, their_next = drawn(lambda: peer.GCNConv(5, 16))
    assert torch.equal(mine_next, their_next)
    same(mine, theirs)
    found, wanted = answers(mine, x, *norm(edges, nodes, x.dtype)), answers(theirs, x, edges)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])
    same(mine, theirs, grads=True)


@pytest.mark.parametrize("nodes", [2, 9, 60])
def test_an_isomorphism_layer_is_torch_geometric_s(nodes):
    x, edges = random_graph(nodes, nodes)
    mine, mine_next = drawn(lambda: Isomorphism(_mlp(5, 64)))
    theirs, their_next = drawn(lambda: peer.GINConv(_mlp(5, 64)))
    assert torch.equal(mine_next, their_next)
    same(mine, theirs)
    found, wanted = answers(mine, x, edges), answers(theirs, x, edges)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])
    same(mine, theirs, grads=True)


def test_pools_are_torch_geometric_s():
    x, _ = random_graph(40, 4)
    batch = torch.sort(torch.randint(0, 6, (40,))).values
    count = int(batch.max()) + 1
    assert torch.equal(added(x, batch, count), peer.global_add_pool(x, batch))
    assert torch.equal(averaged(x, batch, count), peer.global_mean_pool(x, batch))


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize(("mine", "theirs"), [(Adam, torch.optim.Adam), (Descent, torch.optim.SGD)])
def test_steps_are_torch_s(mine, theirs, decay):
    torch.manual_seed(5)
    first = [torch.randn(*shape, dtype=torch.float64) for shape in [(7, 3), (3,), (2, 2)]]
    ours, wanted = ([p.clone().requires_grad_() for p in first] for _ in range(2))
    steps, peers = mine(ours, 0.01, decay), theirs(wanted, lr=0.01, weight_decay=decay)
    for turn in range(30):
        steps.forget()
        peers.zero_grad()
        for a, b, _ in zip(ours, wanted, range(2 if turn < 10 else 3), strict=False):
            # The last has no gradient at first: it is left as it is.
            for p in (a, b):
                (p.sin() * torch.linspace(-3.0, 1.0, p.numel()).reshape(p.shape)).sum().backward()
        steps.step()
        peers.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True)), turn
    assert not torch.equal(ours[2], first[2])
