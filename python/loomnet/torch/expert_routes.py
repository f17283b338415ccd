"""How rows of an all-to-all travel between servers that circuits join: gathered at a delegate, by
its NIC, and scattered (MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from loomnet.torch.connection import connection


@dataclass(frozen=True)
class Servers:
    """Of a group: servers of as many ranks each, which follow one another. `optical`: the rank in
    its server that has each optical NIC; `electrical`: those that have electrical ones. `region`:
    the number of the region that the group is, None where no controller patches circuits for it.
    `reuses`: a dispatch takes the circuits that there are. `rates`: of a circuit and of a server's
    electrical NICs together, bits per second, where two servers with a circuit use both so that all
    end at the same time; None: they use the circuit alone."""

    count: int
    size: int
    optical: tuple[int, ...]
    electrical: tuple[int, ...]
    region: int | None
    reuses: bool
    rates: tuple[float, float] | None = None

    @classmethod
    def of(cls, told: dict[str, Any] | None, ranks: Sequence[int]) -> Servers | None:
        """Of what the run says of a job; None where the group is no whole servers of it."""
        if told is None:
            return None
        size, first = told["size"], ranks[0]
        whole = list(range(first, first + len(ranks)))
        if list(ranks) != whole or first % size or len(ranks) % size:
            return None
        regions = told["regions"]  # ranks of a region; 0: no circuits
        patched = regions and len(ranks) == regions and first % regions == 0
        return cls(
            len(ranks) // size,
            size,
            tuple(told["optical"]),
            tuple(told["electrical"]),
            first // regions if patched else None,
            told["reuses"],
            tuple(told["rates"]) if told["rates"] else None,
        )

    def server(self, rank: int) -> int:
        return rank // self.size

    def ranks(self, server: int) -> range:
        return range(server * self.size, (server + 1) * self.size)


class Routes:
    """Of one all-to-all. `counts`: rows from each rank of the group to each; `circuits`: (server i,
    server j, optical NIC of i, of j)."""

    def __init__(
        self,
        servers: Servers,
        counts: Sequence[Sequence[int]],
        circuits: Sequence[tuple[int, int, int, int]],
    ) -> None:
        self._servers, self._counts = servers, counts
        self._nics: dict[tuple[int, int], int] = {}
        joined: dict[tuple[int, int], int] = {}
        for i, j, nic_i, nic_j in circuits:
            joined[i, j] = joined[j, i] = joined.get((i, j), 0) + 1
            if (i, j) not in self._nics:
                self._nics[i, j], self._nics[j, i] = nic_i, nic_j
        self._by_wires = {} if servers.rates is None else self._split(joined, *servers.rates)

    def _split(
        self, joined: Mapping[tuple[int, int], int], light: float, wires: float
    ) -> dict[tuple[int, int], int]:
        """Of servers that circuits join: the rows from the first to the second that go by wires."""
        servers = range(self._servers.count)
        pairs = [(i, j) for i in servers for j in servers]
        rows = {
            (i, j): self.rows(self._servers.ranks(i), self._servers.ranks(j)) if i != j else 0
            for i, j in pairs
        }
        # The unit does not matter: all rows have as many bytes.
        time = connection().core.weighted_seconds(
            self._servers.count,
            [rows[pair] for pair in pairs],
            [joined.get(pair, 0) for pair in pairs],
            light,
            wires,
        )
        found = {
            pair: rows[pair] - math.ceil(min(count * light * time / 8, rows[pair]))
            for pair, count in joined.items()
        }
        return {pair: count for pair, count in found.items() if count}

    def delegate(self, server: int, peer: int) -> int:
        """The rank of a server that exchanges with a peer server: the one with the NIC of a
        circuit between them, else one with an electrical NIC."""
        nic = self._nics.get((server, peer))
        if nic is None:
            return self.wire_delegate(server, peer)
        return self._servers.ranks(server)[self._servers.optical[nic]]

    def wire_delegate(self, server: int, peer: int) -> int:
        """The rank of a server by whose electrical NIC it exchanges with a peer server."""
        owners = self._servers.electrical
        return self._servers.ranks(server)[owners[(server + peer) % len(owners)]]

    def rows(self, sources: range, destinations: range) -> int:
        return sum(self._counts[s][d] for s in sources for d in destinations)

    def by_wires(self, server: int, peer: int) -> int:
        """Of two servers that a circuit joins: rows to the peer that go by electrical NICs."""
        return self._by_wires.get((server, peer), 0)

    def exchange(
        self, output: torch.Tensor, input: torch.Tensor, me: int, ranks: Sequence[int], group: Any
    ) -> None:
        """Carries rows of `input` to where they belong and fills `output` with those for rank
        `me`, by source. `ranks`: of the job, by rank of the group."""
        way = _Way(self, self._servers, self._counts, me, Moves(ranks, group), input, output)
        way.gather()
        way.hand_over()
        way.cross()
        way.hand_back()
        way.scatter()


class _Way:
    """The steps of one rank in an all-to-all."""

    def __init__(
        self,
        routes: Routes,
        servers: Servers,
        counts: Sequence[Sequence[int]],
        me: int,
        moves: Moves,
        input: torch.Tensor,
        output: torch.Tensor,
    ) -> None:
        self.routes, self.servers, self.counts, self.me = routes, servers, counts, me
        self.moves, self.input, self.output = moves, input, output
        self.own = servers.server(me)
        self.mine = servers.ranks(self.own)
        self.peers = [peer for peer in range(servers.count) if peer != self.own]
        self.sent, self.received = _offsets(counts[me]), _offsets([row[me] for row in counts])
        self.gathered: dict[int, torch.Tensor] = {}  # by peer server: rows for it, at the delegate
        self.handed: dict[int, torch.Tensor] = {}  # of these what goes by wires, at their rank
        self.arrived: dict[int, torch.Tensor] = {}  # from it

    def _space(self, rows: int) -> torch.Tensor:
        return self.input.new_empty((rows, *self.input.shape[1:]))

    def _to(self, first: int, end: int) -> torch.Tensor:
        return self.input[self.sent[first] : self.sent[end]]

    def _from(self, first: int, end: int) -> torch.Tensor:
        return self.output[self.received[first] : self.received[end]]

    def gather(self) -> None:
        """Each peer server's rows come to its delegate."""
        parts: dict[int, list[torch.Tensor]] = {}
        for peer in self.peers:
            theirs, delegate = self.servers.ranks(peer), self.routes.delegate(self.own, peer)
            rows = self._to(theirs.start, theirs.stop)
            if delegate != self.me:
                self.moves.send(rows, delegate)
                continue
            parts[peer] = [
                rows
                if rank == self.me
                else self.moves.receive(
                    self._space(self.routes.rows(range(rank, rank + 1), theirs)), rank
                )
                for rank in self.mine
            ]
        self.moves.end()
        self.gathered = {peer: torch.cat(each) for peer, each in parts.items()}

    def hand_over(self) -> None:
        """What wires take of a pair that a circuit joins, its last rows, goes to their rank."""
        for peer in self.peers:
            if not (count := self.routes.by_wires(self.own, peer)):
                continue
            delegate = self.routes.delegate(self.own, peer)
            wires = self.routes.wire_delegate(self.own, peer)
            if self.me == delegate:
                self.moves.send(self.gathered[peer][-count:], wires)
                self.gathered[peer] = self.gathered[peer][:-count]
            elif self.me == wires:
                self.handed[peer] = self.moves.receive(self._space(count), delegate)
        self.moves.end()

    def cross(self) -> None:
        """From server to server, and inside this one what stays in it."""
        for peer in self.peers:
            rest = self.routes.by_wires(peer, self.own)
            if peer in self.gathered:
                other = self.routes.delegate(peer, self.own)
                count = self.routes.rows(self.servers.ranks(peer), self.mine) - rest
                self.moves.send(self.gathered[peer], other)
                self.arrived[peer] = self.moves.receive(self._space(count), other)
            elif self.me == self.routes.wire_delegate(self.own, peer):
                other = self.routes.wire_delegate(peer, self.own)
                if peer in self.handed:
                    self.moves.send(self.handed[peer], other)
                if rest:
                    self.arrived[peer] = self.moves.receive(self._space(rest), other)
        for rank in self.mine:
            if rank == self.me:
                self._from(rank, rank + 1).copy_(self._to(rank, rank + 1))
            else:
                self.moves.send(self._to(rank, rank + 1), rank)
                self.moves.receive(self._from(rank, rank + 1), rank)
        self.moves.end()

    def hand_back(self) -> None:
        """What has come by wires goes to the delegate."""
        rests: dict[int, torch.Tensor] = {}
        for peer in self.peers:
            if not (count := self.routes.by_wires(peer, self.own)):
                continue
            if peer in self.gathered:
                rests[peer] = self.moves.receive(
                    self._space(count), self.routes.wire_delegate(self.own, peer)
                )
            elif peer in self.arrived:
                self.moves.send(self.arrived[peer], self.routes.delegate(self.own, peer))
        self.moves.end()
        for peer, rows in rests.items():
            self.arrived[peer] = torch.cat([self.arrived[peer], rows])

    def scatter(self) -> None:
        """Of what a peer server's ranks have sent each rank gets its own."""
        for peer in self.peers:
            theirs, delegate = self.servers.ranks(peer), self.routes.delegate(self.own, peer)
            into = self._from(theirs.start, theirs.stop)
            if delegate != self.me:
                self.moves.receive(into, delegate)
                continue
            pieces = _pieces(
                self.arrived[peer], [[self.counts[s][d] for d in self.mine] for s in theirs]
            )
            for rank, rows in zip(self.mine, pieces, strict=True):
                if rank == self.me:
                    into.copy_(rows)
                else:
                    self.moves.send(rows, rank)
        self.moves.end()


class Moves:
    """Messages of one step; none is sent for no rows."""

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
    """Rows that lie by source and then destination, as a tensor for each destination."""
    parts = torch.split(rows, [count for row in counts for count in row])
    width = len(counts[0])
    return [torch.cat(parts[d::width]) for d in range(width)]
