"""A graph neural network of one's own, registered under a name (`apps.common.plugins`).

    class Mine(torch.nn.Module):
        def __init__(self, features, classes, task, width): ...
        def forward(self, x, edge_index, batch): ...    # -> rows, prediction; shapes see `gnn`

    register("models", "mine", Mine)                    # then model = "mine"

For devices it is an entry point of the group ``trellis.models`` in a package that is installed on
the server and on every client. Its first weights are whatever its
``__init__`` draws from torch's default generator, which is seeded. Before anything is trained it is
run on two small graphs, and what would fail or leak later is refused now, by name.
"""

from __future__ import annotations

import inspect
from typing import Any

from trellis.apps.common import plugins
from trellis.apps.common.settings import ConfigError

from ..config import MODELS
from .gnn import Tensor, nn, torch

ARGUMENTS = ("features", "classes", "task", "width")


def own_model(name: str, features: int, classes: int, task: str, width: int) -> nn.Module:
    """Return an instance of the registered class, in float64, checked; see `gnn.build_model`."""
    arguments = dict(zip(ARGUMENTS, (features, classes, task, width), strict=True))
    model = _make(name, arguments)
    _check_on_a_toy(name, model, features, classes, task, classes if task == "node" else width)
    return model


def _make(name: str, arguments: dict[str, Any]) -> nn.Module:
    found = plugins.find("models", "model", name, MODELS)
    # Before it is made: what is no model is never run.
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"model={name!r}: {found!r} is no class of torch modules")
    for what, call, given in (
        (f"{found.__name__}({'=, '.join(ARGUMENTS)}=)", found, arguments),
        (f"{found.__name__}().forward(x, edge_index, batch)", found.forward, None),
    ):
        try:
            signature = inspect.signature(call)
            _ = signature.bind(**given) if given else signature.bind(None, None, None, None)
        except TypeError as error:
            raise ConfigError(f"model={name!r}: cannot be called as {what}: {error}") from None
    model: nn.Module = found(**arguments).double()
    return model


def _check_on_a_toy(
    name: str, model: nn.Module, features: int, classes: int, task: str, h: int
) -> None:
    """Run a model of one's own on a triangle and a lone node; refuse what cannot be trained."""
    x = torch.linspace(-1.0, 1.0, 4 * features, dtype=torch.float64).reshape(4, features)
    edges = torch.tensor([[0, 1, 1, 2, 0, 2], [1, 0, 2, 1, 2, 0]])
    before = {key: value.clone() for key, value in model.named_buffers()}
    model.train()
    try:
        made = model(x, edges, torch.tensor([0, 0, 0, 1]))
    except Exception as error:
        raise ConfigError(
            f"model={name!r}: fails on two small graphs, x float64 of shape {tuple(x.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not (isinstance(made, tuple) and len(made) == 2):
        raise ConfigError(f"model={name!r}: forward must return two tensors (rows, prediction)")
    wanted = (4, h), (4 if task == "node" else 2, classes)
    for what, tensor, shape in zip(("rows", "prediction"), made, wanted, strict=True):
        if not (isinstance(tensor, Tensor) and tensor.dtype == torch.float64):
            raise ConfigError(f"model={name!r}: its {what} must be a float64 tensor")
        if tuple(tensor.shape) != shape:
            raise ConfigError(
                f"model={name!r}: {what} of 4 nodes in 2 graphs have shape {tuple(tensor.shape)}, "
                f"not {shape} (task={task!r})"
            )
        if not torch.isfinite(tensor).all():
            raise ConfigError(f"model={name!r}: its {what} of a lone node are not finite")
    if not any(True for _ in model.parameters()):
        raise ConfigError(f"model={name!r}: has no parameters; there is nothing to learn")
    for key, value in model.named_buffers():
        if key not in before or not torch.equal(value, before[key]):
            raise ConfigError(
                f"model={name!r}: keeps statistics of its data outside its parameters ({key}), as "
                "batch normalisation does; they are not averaged and not protected. Use "
                "torch.nn.LayerNorm, or track_running_stats=False"
            )
