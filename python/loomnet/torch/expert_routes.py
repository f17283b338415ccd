"""The way of an all-to-all's rows between servers that circuits join: they are gathered at a
delegate, sent by its NIC, and scattered in the other server (MixNet, SIGCOMM 2025, doi
10.1145/3718958.3750465)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Servers:
    """Of a group: servers of as many ranks each, which follow one another. `optical`: the rank in
    its server that has each optical NIC; `electrical`: those that have electrical ones. `region`:
    the number of the region that the group is, None where no controller patches circuits for it.
    `reuses`: a dispatch takes the circuits that there are."""

    count: int
    size: int
    optical: tuple[int, ...]
    electrical: tuple[int, ...]
    region: int | None
    reuses: bool

    @classmethod
    def of(cls, told: dict[str, Any] | None, ranks: Sequence[int]) -> Servers | None:
        """The servers of a group, from the run's description of the job. None where the group does
        not consist of whole servers."""
        if told is None:
            return None
        size, first = told["size"], ranks[0]
        whole = list(range(first, first + len(ranks)))
        if list(ranks) != whole or first % size or len(ranks) % size:
            return None
        regions = told["regions"]  # ranks of a region; 0: no circuits
        patched = regions and len(ranks) == regions and first % regions == 0
        return cls(len(ranks) // size, size, tuple(told["optical"]), tuple(told["electrical"]),
                   first // regions if patched else None, told["reuses"])

    def server(self, rank: int) -> int:
        return rank // self.size

    def ranks(self, server: int) -> range:
        return range(server * self.size, (server + 1) * self.size)


class Routes:
    """Of one all-to-all. `counts`: rows from each rank of the group to each; `circuits`: (server i,
    server j, optical NIC of i, of j)."""

    def __init__(self, servers: Servers, counts: Sequence[Sequence[int]],
                 circuits: Sequence[tuple[int, int, int, int]]) -> None:
        self._servers, self._counts = servers, counts
        self._nics: dict[tuple[int, int], int] = {}
        for i, j, nic_i, nic_j in circuits:
            if (i, j) not in self._nics:
                self._nics[i, j], self._nics[j, i] = nic_i, nic_j

    def delegate(self, server: int, peer: int) -> int:
        """The rank of a server that exchanges with a peer server: the one with the NIC of a
        circuit between them, else one with an electrical NIC."""
        nic = self._nics.get((server, peer))
        owners = self._servers.electrical
        local = owners[(server + peer) % len(owners)] if nic is None else self._servers.optical[nic]
        return self._servers.ranks(server)[local]

    def rows(self, sources: range, destinations: range) -> int:
        return sum(self._counts[s][d] for s in sources for d in destinations)

    def exchange(self, output: torch.Tensor, input: torch.Tensor, me: int, ranks: Sequence[int],
                 group: Any) -> None:
        """Sends the rows of `input` to their destinations and fills `output` with the rows for rank
        `me`, ordered by source. `ranks`: for each rank of the group its rank in the job."""
        servers, counts = self._servers, self._counts
        own = servers.server(me)
        mine = servers.ranks(own)
        peers = [peer for peer in range(servers.count) if peer != own]
        width = input.shape[1:]
        sent, received = _offsets(counts[me]), _offsets([row[me] for row in counts])
        moves = Moves(ranks, group)

        def part(tensor: torch.Tensor, offsets: list[int], first: int, end: int) -> torch.Tensor:
            return tensor[offsets[first]:offsets[end]]

        # Gather: the rows for each peer server go to the delegate for that server.
        gathered: dict[int, list[torch.Tensor]] = {}
        for peer in peers:
            theirs, delegate = servers.ranks(peer), self.delegate(own, peer)
            rows = part(input, sent, theirs.start, theirs.stop)
            if delegate != me:
                moves.send(rows, delegate)
                continue
            gathered[peer] = [
                rows if rank == me else moves.receive(
                    rows.new_empty((self.rows(range(rank, rank + 1), theirs), *width)), rank)
                for rank in mine]
        moves.end()
        # Exchange: delegates send to each other; rows that stay in this server are sent directly.
        arrived: dict[int, torch.Tensor] = {}
        for peer, parts in gathered.items():
            theirs, other = servers.ranks(peer), self.delegate(peer, own)
            moves.send(torch.cat(parts), other)
            arrived[peer] = moves.receive(input.new_empty((self.rows(theirs, mine), *width)), other)
        for rank in mine:
            if rank == me:
                part(output, received, me, me + 1).copy_(part(input, sent, me, me + 1))
            else:
                moves.send(part(input, sent, rank, rank + 1), rank)
                moves.receive(part(output, received, rank, rank + 1), rank)
        moves.end()
        # Scatter: each rank gets its rows of those that the delegates have received.
        for peer in peers:
            theirs, delegate = servers.ranks(peer), self.delegate(own, peer)
            into = part(output, received, theirs.start, theirs.stop)
            if delegate != me:
                moves.receive(into, delegate)
                continue
            pieces = _pieces(arrived[peer], [[counts[s][d] for d in mine] for s in theirs])
            for rank, rows in zip(mine, pieces, strict=True):
                if rank == me:
                    into.copy_(rows)
                else:
                    moves.send(rows, rank)
        moves.end()


class Moves:
    """The messages of one step. A message without rows is not sent."""

    def __init__(self, ranks: Sequence[int], group: Any) -> None:
        self._ranks, self._group = ranks, group
        self._moves: list[dist.P2POp] = []

    def send(self, rows: torch.Tensor, to: int) -> None:
        if rows.numel():
            self._moves.append(dist.P2POp(dist.isend, rows, self._ranks[to], self._group))

    def receive(self, into: torch.Tensor, source: int) -> torch.Tensor:
        if into.numel():
            self._moves.append(dist.P2POp(dist.irecv, into, self._ranks[source], self._group))
        return into

    def end(self) -> None:
        moves, self._moves = self._moves, []
        if moves:
            for work in dist.batch_isend_irecv(moves):
                work.wait()


def _offsets(counts: Sequence[int]) -> list[int]:
    found = [0]
    for count in counts:
        found.append(found[-1] + count)
    return found


def _pieces(rows: torch.Tensor, counts: list[list[int]]) -> list[torch.Tensor]:
    """A tensor for each destination, from rows that are ordered by source and then destination."""
    parts = torch.split(rows, [count for row in counts for count in row])
    width = len(counts[0])
    return [torch.cat(parts[d::width]) for d in range(width)]
