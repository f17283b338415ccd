"""plain.Job with PyTorch: an optimizer's steps, gloo mapped to the NIC."""

import torch
import torch.distributed as dist


class Job:
    def __init__(self):
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._weights = torch.nn.Parameter(torch.zeros(1000))
        self._optimizer = torch.optim.SGD([self._weights], lr=0.1)
        self._sent = None

    def all_reduce(self):
        self._weights.grad = torch.ones_like(self._weights)
        dist.all_reduce(self._weights.grad)

    def step(self, number):
        self._optimizer.step()

    def start_send(self, peer):
        self._sent = dist.isend(torch.ones(100_000), peer)

    def receive(self, peer):
        dist.recv(torch.ones(100_000), peer)

    def leave(self):
        dist.destroy_process_group()
