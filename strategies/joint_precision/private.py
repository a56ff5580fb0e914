"""The private consensus of joint-precision as a Flower strategy: one sum of concordances.

What is computed from the sum is the study's (`apps.joint_precision.private`), given as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.wire import BadReply
from trellis.strategies.pooled import Facts, PooledStrategy, Terms

Arrays = dict[str, NDArray[Any]]
Vector = NDArray[np.float64]


def layout(variables: int) -> dict[str, tuple[int, ...]]:
    """Return the terms of the sum: concordances of all pairs, and the samples' weights.

    Raises
    ------
    StudyError
        For one variable, which has no graph.
    """
    if variables < 2:
        raise StudyError("one variable has no graph: at least two are needed")
    return {"concordance": (variables * (variables - 1) // 2,), "weight": (1,)}


class PooledPrecision(PooledStrategy):
    """The precision matrix that all clients share, from one sum over all of them.

    Messages are those of `PooledStrategy`. ``Result.arrays`` has ``consensus`` (p, p), the sparse
    Psi, ``precision`` (p, p) and what else ``estimate`` returns. The first score counts right
    predictions of held-out signs.

    Parameters
    ----------
    estimate : makes the public arrays and metrics from the sum, the number of samples that clients
        declare and the noise of an entry
    parts : names and shapes of the terms of the sum, see `layout`
    options : of `PooledStrategy`
    """

    judged = ("consensus",)
    score = "held-out-accuracy"

    def __init__(
        self,
        estimate: Callable[[Mapping[str, Vector], int, float], tuple[Arrays, Facts]],
        parts: Mapping[str, tuple[int, ...]],
        **options: Any,
    ) -> None:
        super().__init__(parts, **options)
        self.estimate = estimate

    def solve(self, total: Terms, facts: Facts) -> tuple[Arrays, Facts]:
        """Make the consensus from the sum."""
        return self.estimate(total, int(facts["num-examples"]), facts["noise"])


class PersonalMatrices:
    """Matrices that clients made on their devices; simulated ones send them, to be evaluated."""

    def __init__(self, variables: int, points: Vector) -> None:
        self.variables, self.points = variables, points
        self.found: dict[int, Arrays] = {}

    def take(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's matrices; raise `BadReply` to reject them."""
        p, length = self.variables, self.points.size
        arrays = {name: np.array(a) for name, a in wire.arrays(content["arrays"]).items()}
        shapes = {
            "sparse": (p, p),
            "precision": (p, p),
            "alone": (p, p),
            "trust": (3,),
            "path_ebic": (length,),
        }
        if missing := sorted({*shapes, "path_support", "chosen"} - set(arrays)):
            raise BadReply(f"{missing[0]} is missing")
        for name, shape in shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype != np.float64:
                raise BadReply(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
        packed = (length, -(-p * (p - 1) // 2 // 8))
        if arrays["path_support"].shape != packed or arrays["path_support"].dtype != np.uint8:
            raise BadReply(f"path_support has shape {arrays['path_support'].shape}, not {packed}")
        if arrays["chosen"].shape != () or not 0 <= int(arrays["chosen"]) < length:
            raise BadReply("the chosen point is not on the path")
        self.found[client] = arrays
