"""Flower: federated averaging with a server on host 1; each client trains so many batches in a round."""

import subprocess
import sys
import time

import flwr
from flwr.common import ndarrays_to_parameters
from task import Participant, network, parser

BATCHES, PORT = 100, 8080

arguments = parser(__doc__)
arguments.add_argument("--serve", action="store_true")
args = arguments.parse_args()


def serve() -> None:
    weights = [value.numpy() for value in network(args.model).state_dict().values()]
    strategy = flwr.server.strategy.FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=args.world,
        min_available_clients=args.world,
        initial_parameters=ndarrays_to_parameters(weights),
    )
    flwr.server.start_server(
        server_address=f"{args.head}:{PORT}", config=flwr.server.ServerConfig(num_rounds=1_000_000), strategy=strategy
    )


class Client(flwr.client.NumPyClient):
    def __init__(self) -> None:
        self.me = Participant(args)
        self.optimizer = self.me.optimizer()
        self.batches = self.me.batches()

    def get_parameters(self, config):
        return [value.numpy() for value in self.me.model.state_dict().values()]

    def fit(self, parameters, config):
        import torch

        state = dict(zip(self.me.model.state_dict(), map(torch.tensor, parameters), strict=True))
        self.me.model.load_state_dict(state)
        if args.rank == 0:
            self.me.write_weights(self.me.model)
        for _ in range(BATCHES):
            self.me.loss(next(self.batches)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.me.stepped()
        return self.get_parameters(config), BATCHES * self.me.task.batch, {}


if args.serve:
    serve()
else:
    if args.rank == 0:
        server = subprocess.Popen([sys.executable, *sys.argv, "--serve"])
    client = Client().to_client()
    time.sleep(1.0)
    flwr.client.start_client(server_address=f"{args.head}:{PORT}", client=client, insecure=True, max_retries=60)
