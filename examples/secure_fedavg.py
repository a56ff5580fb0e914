"""Secure aggregation around Flower's own FedAvg: the server sees means, no client's model.

Run it in one process: ``python examples/secure_fedavg.py``. In a Flower app of your own, keep the
two lines marked with <-- and the rest as it is.
"""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from trellis.privacy.secagg.client import secure_aggregation
from trellis.sim.grid import run_local
from trellis.strategies.secure_grid import SecureGrid

client_app, server_app = ClientApp(), ServerApp()


def new_model() -> torch.nn.Module:
    """Return the model that everyone starts from."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch of gradient descent on this client's own records."""
    torch.manual_seed(int(context.node_config["partition-id"]))
    x = torch.randn(64, 4)
    y = x.sum(dim=1, keepdim=True)
    model = new_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for rows in torch.arange(64).split(16):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(RecordDict(content), reply_to=message)


secure_aggregation(client_app)  # <-- the client's half


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Five rounds of FedAvg on sums that nobody can look into."""
    strategy = FedAvg(fraction_evaluate=0.0)
    arrays = ArrayRecord(new_model().state_dict())
    result = strategy.start(SecureGrid(grid), arrays, num_rounds=5)  # <-- the server's half
    print({name: tuple(array.shape) for name, array in result.arrays.items()})


if __name__ == "__main__":
    clients = [{"partition-id": i, "num-partitions": 4} for i in range(4)]
    run_local(server_app, client_app, clients, {})
