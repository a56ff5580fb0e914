# mypy: ignore-errors
"""pfl-research: federated averaging of a linear model, all users in every round.

One process, one thread, everything that can be left out left out: users' data lie in memory as
tensors, a cohort is the list of users (its own samplers draw a random state for each), no user is
evaluated, nothing is noised, no callback is called. ``way`` is

    torch   its PyTorch model and `FederatedAveraging`, one local step of SGD on a user's data
    numpy   a federated algorithm of one's own, as its Gaussian mixtures have: gradients in numpy
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.hyperparam.base import HyperParams
from pfl.metrics import Metrics
from pfl.stats import MappedVectorStatistics


class Everyone(FederatedDatasetBase):
    """All users, in order, every time."""

    def __init__(self, users):
        super().__init__()
        self.users = [(user, 0) for user in users]

    def __next__(self):
        return self.users[0]

    def get_cohort(self, cohort_size):
        """Return everyone."""
        return self.users


class Clock(TrainingProcessCallback):
    """Notes the processor's seconds when a round has ended."""

    def __init__(self):
        self.ends = [time.process_time()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Note the time."""
        self.ends.append(time.process_time())
        return False, Metrics()


class GradientDescent(FederatedAlgorithm):
    """One gradient step a user, in numpy; the mean of the users' models is the next one."""

    def __init__(self, rounds, cohort, step):
        super().__init__()
        self.rounds, self.cohort, self.step = rounds, cohort, step

    def get_next_central_contexts(self, model, iteration, algorithm_params, *params):
        """Ask everyone, in every round."""
        if iteration == self.rounds:
            return None, model, Metrics()
        context = CentralContext(
            current_central_iteration=iteration,
            do_evaluation=False,
            cohort_size=self.cohort,
            population=Population.TRAIN,
            model_train_params=params[0],
            algorithm_params=algorithm_params,
        )
        return (context,), model, Metrics()

    def simulate_one_user(self, model, user_dataset, central_context):
        """Return a user's step."""
        X, y = user_dataset.raw_data
        change = X.T @ (y - X @ model["w"])
        change *= self.step / len(y)
        return MappedVectorStatistics({"w": change}), Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        """Take the mean of the steps."""
        statistics.average()
        model["w"] = model["w"] + statistics["w"]
        return model, Metrics()


def by_numpy(X, y, step, rounds, clock):
    """Return the model after all rounds."""
    data = Everyone([Dataset((a, b)) for a, b in zip(X, y, strict=True)])
    model = {"w": np.zeros(X.shape[2])}
    nothing = HyperParams()
    GradientDescent(rounds, len(X), step).run(
        nothing, SimulatedBackend(data, data), model, nothing, callbacks=[clock]
    )
    return model["w"]


def by_torch(X, y, step, rounds, clock):
    """Return the model after all rounds."""
    import torch
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)

    class Linear(torch.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(features))

        def loss(self, X, y):
            return 0.5 * torch.mean((X @ self.w - y) ** 2)

        def metrics(self, X, y):
            return {}

    def tensor(array):
        return torch.tensor(array, dtype=torch.float32)

    data = Everyone(
        [PyTorchTensorDataset((tensor(a), tensor(b))) for a, b in zip(X, y, strict=True)]
    )
    linear = Linear(X.shape[2])
    central = torch.optim.SGD(linear.parameters(), lr=1.0)
    model = PyTorchModel(linear, torch.optim.SGD, central)
    # Users are evaluated in the first round at least: of a model without metrics that is an error,
    # so rounds are counted from 1.
    algorithm = FederatedAveraging()
    algorithm._current_central_iteration = 1
    algorithm.run(
        NNAlgorithmParams(rounds + 1, rounds + 2, len(X), 0),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_batch_size=None, local_num_epochs=1, local_learning_rate=step),
        callbacks=[clock],
    )
    return linear.w.detach().numpy()


def peak_memory(begin=False):
    """Return the peak of memory in KB, as Linux counts it; ``begin`` lets it begin anew."""
    if begin:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def main():
    """Read the task, train, print the seconds of the rounds and the model."""
    task = json.loads(sys.stdin.read())
    # What is loaded is no user's.
    if task["way"] == "torch":
        importlib.import_module("pfl.data.pytorch")
        importlib.import_module("pfl.model.pytorch")
    before = peak_memory(begin=True)
    with np.load(task["data"]) as file:
        X, y = file["X"], file["y"]
    clock = Clock()
    way = {"torch": by_torch, "numpy": by_numpy}[task["way"]]
    model = way(X, y, task["step"], task["rounds"], clock)
    told = {
        "seconds": np.diff(clock.ends).tolist(),
        "model": np.asarray(model, dtype=float).tolist(),
        "peak": peak_memory() - before,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
