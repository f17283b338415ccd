"""When to patch a region's circuits, by closed forms: what the requests of a run ask for, what each
choice of circuits costs, and choices that need no run: never, always, rent or buy, and the best in
hindsight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.jobs.moe_job import GPUS, MoeJob
from loomnet.measures.expert_rounds import ExpertRounds
from loomnet.systems import mixnet
from loomnet.systems.mixnet.gates import gate_counts


@dataclass(frozen=True, eq=False)
class Request:
    """`tokens` between servers in one exchange, `demand` of their pairs, as the controller gets it.
    `exchanges` take its circuits; `hidden_s` of a dark time passes while something computes."""

    iteration: int
    demand: np.ndarray
    bytes: np.ndarray
    exchanges: int
    hidden_s: float


def requests_of(job: MoeJob, seed: int) -> list[Request]:
    """Those of a region that is a job's only stage and replica, in the order of the run: a forward
    and a backward pass of each micro-batch in turn."""
    counts = gate_counts(job, 1, seed)
    found = []

    def ask(iteration: int, layer: int, exchanges: int, hidden_s: float) -> None:
        tokens = counts[iteration % len(counts), 0, 0, layer % counts.shape[3]]
        demand = mixnet.pair_demand(
            tokens,
            tensor_parallel=job.tensor_ranks,
            gpus_per_server=GPUS,
            duplex=job.circuits.demand if job.circuits else "max",
        )
        # One expert is on one server here: what its GPUs exchange is what the servers do.
        sent = tokens / tokens[0].sum() * job.bytes_per_rank * job.tensor_ranks
        np.fill_diagonal(sent, 0)
        found.append(Request(iteration, demand, sent, exchanges, hidden_s))

    last = job.layer_count - 1
    for iteration in range(job.iterations):
        for _ in range(job.micro_batches):
            for layer in range(last):
                ask(iteration, layer, 2, 0.0)
            ask(iteration, last, 4, 0.0)  # the backward pass begins with this layer
            for layer in range(last - 1, -1, -1):
                ask(iteration, layer, 2, 2 * job.attention_ps / 1e12)
    return found


@dataclass(eq=False)
class Game:
    """The requests of a run and the circuits to choose among: those at the start, and those that a
    rule assigns to each request. lasts[request, choice] in seconds."""

    requests: list[Request]
    choices: list[np.ndarray]
    wanted: list[int]  # by request: the choice that the rule assigns
    lasts: np.ndarray
    dark_s: float

    def dark(self, request: int, before: int, after: int) -> float:
        """What a change costs at a request. One that only removes circuits darkens nothing."""
        if not (self.choices[after] > self.choices[before]).any():
            return 0.0
        return max(0.0, self.dark_s - self.requests[request].hidden_s)

    def cost(self, chosen: Sequence[int]) -> float:
        """Seconds of all exchanges and dark times."""
        return sum(
            self.dark(n, before, after) + self.lasts[n, after]
            for n, (before, after) in enumerate(zip((0, *chosen[:-1]), chosen, strict=True))
        )

    def numbers(self, circuits: Sequence[np.ndarray]) -> list[int]:
        """The choices that these are, by request. Raises KeyError for others."""
        known = {each.tobytes(): number for number, each in enumerate(self.choices)}
        return [known[each.tobytes()] for each in circuits]


def game(
    job: MoeJob,
    seed: int,
    start: np.ndarray,
    *,
    rule: str,
    split: str,
    dark_s: float,
    circuit_bps: float,
    electrical_bps: float,
) -> Game:
    requests = requests_of(job, seed)
    alpha = int(start.sum(1).max())
    choices, numbers, wanted = [start], {start.tobytes(): 0}, []
    for each in requests:
        found = mixnet.assign(each.demand, alpha, rule=rule).circuits
        number = numbers.setdefault(found.tobytes(), len(choices))
        if number == len(choices):
            choices.append(found)
        wanted.append(number)
    seconds = {}
    for each in requests:
        for number, circuits in enumerate(choices):
            key = each.bytes.tobytes(), number
            if key not in seconds:
                seconds[key] = _seconds(split, each.bytes, circuits, circuit_bps, electrical_bps)
    lasts = np.array(
        [
            [
                each.exchanges * seconds[each.bytes.tobytes(), number]
                for number in range(len(choices))
            ]
            for each in requests
        ]
    )
    return Game(requests, choices, wanted, lasts, dark_s)


def _seconds(
    split: str, sent: np.ndarray, circuits: np.ndarray, circuit_bps: float, electrical_bps: float
) -> float:
    return _core.exchange_seconds(
        split,
        len(sent),
        sent.astype(np.int64).ravel().tolist(),
        circuits.ravel().tolist(),
        circuit_bps,
        electrical_bps,
    )


def played(game: Game, experts: ExpertRounds) -> list[np.ndarray]:
    """The circuits that each request got in a run."""
    maps = [np.array(each.circuits) for each in experts.kept]
    last = max(note.key[1] for note in experts.events)
    found, present = [], 0
    for note in experts.events:
        _, layer, _, backward, _ = note.key
        if note.event == "apply":
            present += 1
            found[-1] = maps[present]
        elif note.event == "demand" and not (backward and layer == last):  # which takes the others'
            found.append(maps[present])
    if len(found) != len(game.requests):
        raise UsageError(f"played: {len(found)} requests, not {len(game.requests)}")
    return found


# --- choices --------------------------------------------------------------------------------------
def never(game: Game) -> list[int]:
    return [0] * len(game.requests)


def always(game: Game) -> list[int]:
    return list(game.wanted)


def rent_or_buy(game: Game) -> list[int]:
    """Ski rental: what other circuits would have saved is rent, a dark time is the price. It buys
    when the rent that it has paid since it last bought is the price, and so pays at most twice what
    one who had known the end of the rent would have paid (Karlin et al., Algorithmica 1988)."""
    found, present, rent = [], 0, 0.0
    for number, wanted in enumerate(game.wanted):
        rent += game.lasts[number, present] - game.lasts[number, wanted]
        price = game.dark(number, present, wanted)
        if wanted != present and rent > 0 and rent >= price:
            present, rent = wanted, 0.0
        found.append(present)
    return found


def clairvoyant(game: Game) -> list[int]:
    """The cheapest of all sequences of these choices, one for each request, by a dynamic programme.
    It knows the demands of all requests before the first."""
    count = len(game.choices)
    moves = np.array(
        [[(game.choices[b] > game.choices[a]).any() for b in range(count)] for a in range(count)]
    )
    cheapest = np.where(np.arange(count) == 0, 0.0, np.inf)
    before = []
    for number, each in enumerate(game.requests):
        dark = max(0.0, game.dark_s - each.hidden_s)
        costs = cheapest[:, None] + dark * moves  # [from, to]
        # Of equal ones it stays.
        costs[np.arange(count), np.arange(count)] -= 1e-12
        come = costs.argmin(0)
        before.append(come)
        cheapest = costs[come, np.arange(count)] + game.lasts[number]
    last = int(cheapest.argmin())
    found = []
    for come in reversed(before):
        found.append(last)
        last = int(come[last])
    return found[::-1]


CHOICES: dict[str, Callable[[Game], list[int]]] = {
    "never": never,
    "always": always,
    "rent or buy": rent_or_buy,
    "clairvoyant": clairvoyant,
}
