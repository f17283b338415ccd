"""The two collectives that MixNet gives a training script (SIGCOMM 2025, doi
10.1145/3718958.3750465): an all-to-all of experts that goes by optical circuits, and an all-reduce
through gateways.

    from loomnet.torch import mixnet

    there = mixnet.all_to_all(rows, counts_in, counts_out, layer=3)            # dispatch
    back = mixnet.all_to_all(there, counts_out, counts_in, layer=3, combine=True)

Both differentiate. Outside a run of Loomnet, and in one whose job has no ``circuits=``, they are
what ``torch.distributed`` has, so that a script runs anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from loomnet.base import rank_environment as env
from loomnet.torch import steps
from loomnet.torch.connection import connection
from loomnet.torch.expert_routes import Moves, Routes, Servers

_UNIT = 64  # values of a server's share that gateways divide evenly among them
# PyTorch 2.13 renamed this function.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_BACKWARD = {0: 3, 1: 2}  # the phase of the gradient of phase 0 (dispatch) and of phase 1 (combine)


class _Region:
    """What this process knows of a group: its servers, and the circuits in the controller's last
    answer."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.ranks = dist.get_process_group_ranks(group)
        self.me = self.ranks.index(dist.get_rank())
        told = json.loads(os.environ.get(env.SERVERS, "null"))
        self.servers = Servers.of(told, self.ranks)
        self.patched = self.servers is not None and self.servers.region is not None
        self.circuits: list[tuple[int, int, int, int]] = []
        self.counts: dict[int, torch.Tensor] = {}  # by layer: the counts of its last dispatch
        self._calls: dict[int, int] = {}
        self._step = -1
        # by layer: the number of a report whose answer has not been read
        self._asked: dict[int, int] = {}

    # --- the controller ---------------------------------------------------------------------------
    def micro_batch(self, layer: int, phase: int) -> int:
        """The number of a layer's forward pass in this step. Each dispatch begins a new one."""
        if phase == 1:
            return self._calls.get(layer, 0)
        if (step := steps.count()) != self._step:
            self._step, self._calls = step, {}
        self._calls[layer] = self._calls.get(layer, -1) + 1
        return self._calls[layer]

    def report(
        self, phase: int, layer: int, micro_batch: int, row: Sequence[int], token: int
    ) -> int:
        assert self.servers is not None and self.servers.region is not None
        link = connection()
        number = link.session.report(
            link.core.demand_report(
                phase=phase,
                iteration=max(steps.count(), 0),
                layer=layer,
                micro_batch=micro_batch,
                region=self.servers.region,
                source=self.me,
                token_bytes=token,
                tokens=list(row),
            )
        )
        if number is None:
            raise RuntimeError("loomnet: mixnet.all_to_all: too many reports are under way")
        return number

    def hear(self, number: int) -> None:
        link = connection()
        answer = link.session.answer(number)
        assert answer is not None  # without a time limit there is always an answer
        _, _, circuits = link.core.circuit_map(answer)
        self.circuits = [each[:4] for each in circuits]

    def circuits_for(
        self, phase: int, layer: int, micro_batch: int, counts: torch.Tensor, token: int
    ) -> None:
        """Waits for the circuits of this all-to-all where the controller patches for it: before a
        dispatch, and before the gradient of a combine. The other two all-to-alls of a layer use
        the same circuits."""
        assert self.servers is not None
        if phase in (0, 2):
            self.hear(self.report(phase, layer, micro_batch, counts[self.me].tolist(), token))
        elif phase == 1 and layer in self._asked:
            self.hear(self._asked.pop(layer))

    def dispatched(
        self, phase: int, layer: int, micro_batch: int, counts: torch.Tensor, token: int
    ) -> None:
        """To be called after a dispatch that did not wait for circuits: the controller patches them
        for the combine while the experts compute."""
        assert self.servers is not None
        if phase == 0 and self.servers.reuses:
            self._asked[layer] = self.report(1, layer, micro_batch, counts[self.me].tolist(), token)


_regions: dict[Any, _Region] = {}


def _region(group: Any) -> _Region:
    group = dist.group.WORLD if group is None else group
    if group not in _regions:
        _regions[group] = _Region(group)
    return _regions[group]


def all_to_all(
    input: torch.Tensor,
    input_split_sizes: Sequence[int],
    output_split_sizes: Sequence[int],
    *,
    layer: int = 0,
    combine: bool = False,
    group: Any = None,
) -> torch.Tensor:
    """Rows of `input` to the group's ranks, as ``dist.all_to_all_single`` sends them; returns those
    received, in the order of their ranks.

    Where the job has circuits, the counts of a dispatch are reported to the region's controller,
    which patches them; what two servers exchange is gathered at the rank that has the NIC of their
    circuit, goes by it, and is scattered in the other server.

    Args:
        input: (sum of input_split_sizes, …), rows for rank 0 first.
        input_split_sizes: rows to each rank of the group, a gate's counts.
        output_split_sizes: rows from each.
        layer: of the model; each has circuits of its own.
        combine: experts' answers go back to where their tokens came from: after the dispatch of
            this layer, with its two lists exchanged.
        group: None: the default one.

    Raises:
        ValueError: the rows are not those of the lists, or a combine's are not its dispatch's.
    """
    state = _region(group)
    sizes = list(map(int, input_split_sizes)), list(map(int, output_split_sizes))
    for name, each in zip(("input_split_sizes", "output_split_sizes"), sizes, strict=True):
        if len(each) != len(state.ranks) or min(each) < 0:
            raise ValueError(
                f"mixnet.all_to_all: {name}: {len(each)} numbers; give 0 or more rows "
                f"for each of the {len(state.ranks)} ranks of the group"
            )
    if input.dim() == 0 or input.shape[0] != sum(sizes[0]):
        raise ValueError(
            f"mixnet.all_to_all: input has {input.shape[0] if input.dim() else 0} "
            f"rows, and input_split_sizes are {sum(sizes[0])}"
        )
    if type(layer) is not int or not 0 <= layer < 2**16 - 1:
        raise ValueError(f"mixnet.all_to_all: layer={layer!r} must be a whole number from 0")
    counts = None
    if state.patched:
        counts = _counts(state, sizes, layer, combine)
    return _Exchange.apply(input, state, sizes, counts, layer, 1 if combine else 0)


def _counts(
    state: _Region, sizes: tuple[list[int], list[int]], layer: int, combine: bool
) -> torch.Tensor:
    """The rows from each rank to each. They are gathered for a dispatch; those of a combine are the
    transpose."""
    if not combine:
        own = torch.tensor(sizes[0], dtype=torch.int64)
        found = torch.empty(len(state.ranks) * len(state.ranks), dtype=torch.int64)
        _all_gather(found, own, group=state.group)
        state.counts[layer] = found.view(len(state.ranks), -1)
        counts = state.counts[layer]
    elif layer in state.counts:
        counts = state.counts[layer].t().contiguous()
    else:
        raise ValueError(f"mixnet.all_to_all: combine of layer {layer}, which has had no dispatch")
    if counts[state.me].tolist() != sizes[0] or counts[:, state.me].tolist() != sizes[1]:
        raise ValueError(
            "mixnet.all_to_all: the lists of rows are not those of the "
            + ("layer's dispatch, exchanged" if combine else "other ranks")
        )
    return counts


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        state: _Region,
        sizes: tuple[list[int], list[int]],
        counts: torch.Tensor | None,
        layer: int,
        phase: int,
    ) -> torch.Tensor:
        micro_batch = 0 if counts is None else state.micro_batch(layer, phase)
        ctx.told = state, sizes, counts, layer, phase, micro_batch
        return _exchanged(input, state, sizes, counts, layer, phase, micro_batch)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        state, (sent, received), counts, layer, phase, micro_batch = ctx.told
        back = None if counts is None else counts.t().contiguous()
        grad = _exchanged(
            gradients[0], state, (received, sent), back, layer, _BACKWARD[phase], micro_batch
        )
        return grad, None, None, None, None, None


def _exchanged(
    input: torch.Tensor,
    state: _Region,
    sizes: tuple[list[int], list[int]],
    counts: torch.Tensor | None,
    layer: int,
    phase: int,
    micro_batch: int,
) -> torch.Tensor:
    rows = input.detach().contiguous()
    output = rows.new_empty((sum(sizes[1]), *rows.shape[1:]))
    if counts is None:
        dist.all_to_all_single(output, rows, sizes[1], sizes[0], group=state.group)
        return output
    assert state.servers is not None
    token = rows[0].numel() * rows.element_size() if rows.shape[0] else 0
    # A dispatch and the gradient of a combine send the demand. The other two all-to-alls send it
    # back.
    demand = counts if phase in (0, 2) else counts.t()
    state.circuits_for(phase, layer, micro_batch, demand, token)
    routes = Routes(state.servers, counts.tolist(), state.circuits)
    routes.exchange(output, rows, state.me, state.ranks, state.group)
    state.dispatched(phase, layer, micro_batch, demand, token)
    return output


def all_reduce(tensor: torch.Tensor, group: Any = None) -> None:
    """The sum over the group's ranks, in place. Inside a run ranks of a server add up in their
    order at its gateways, the ranks that have its electrical NICs; each gateway sums its share with
    those of the other servers by a ring; and the sum is handed on inside the server. The order of
    additions depends on the servers alone, not on the number of gateways, so results are equal bit
    for bit on fabrics with more or fewer electrical NICs."""
    state = _region(group)
    if state.servers is None or not tensor.is_floating_point():
        dist.all_reduce(tensor, group=group)
        return
    servers = state.servers
    gates = len(servers.electrical)
    flat = tensor.detach().reshape(-1)
    unit = servers.count * (_UNIT if _UNIT % gates == 0 else _UNIT * gates)
    padded = flat.new_zeros(-(-flat.numel() // unit) * unit)
    padded[: flat.numel()] = flat
    # The part of each server in the ring. Each gateway carries a share of it.
    shares = padded.view(servers.count, gates, -1)
    for number, owner in enumerate(servers.electrical):
        mine = shares[:, number].contiguous()
        _through_gateway(mine, state, owner)
        shares[:, number] = mine
    tensor.detach().copy_(padded[: flat.numel()].view(tensor.shape))


def _through_gateway(parts: torch.Tensor, state: _Region, owner: int) -> None:
    """Sums `parts` (servers, …) over all ranks, in place, at the gateways that are rank `owner` of
    each server. No groups are made: their names would have to agree at ranks of which each may
    have made groups of its own."""
    servers = state.servers
    assert servers is not None
    own = servers.server(state.me)
    ranks, gateway = servers.ranks(own), servers.ranks(own)[owner]
    moves = Moves(state.ranks, state.group)
    if state.me != gateway:
        moves.send(parts, gateway)
        moves.end()
        moves.receive(parts, gateway)
        moves.end()
        return
    given = {
        rank: moves.receive(torch.empty_like(parts), rank) for rank in ranks if rank != gateway
    }
    moves.end()
    added = [parts.clone() if rank == gateway else given[rank] for rank in ranks]
    parts.copy_(added[0])
    for each in added[1:]:
        parts.add_(each)
    _ring(parts, own, [servers.ranks(server)[owner] for server in range(servers.count)], moves)
    for rank in given:
        moves.send(parts, rank)
    moves.end()


def _ring(parts: torch.Tensor, place: int, ring: Sequence[int], moves: Moves) -> None:
    """A ring's reduce-scatter and all-gather. The sum of part p begins at server p + 1 and goes
    round to server p."""
    count = len(ring)
    ahead, behind = ring[(place + 1) % count], ring[place - 1]
    for step in range(2 * (count - 1)):
        adds = step < count - 1
        # In each step every part moves to the next server.
        leaves, comes = (place - 1 - step) % count, (place - 2 - step) % count
        came = torch.empty_like(parts[comes])
        moves.send(parts[leaves], ahead)
        moves.receive(came, behind)
        moves.end()
        parts[comes] = came + parts[comes] if adds else came
