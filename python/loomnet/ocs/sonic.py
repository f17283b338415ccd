"""The configuration and state of a panel as SONiC's OCS design has them: tables, requests in three
modes, and reconcile, which sets all cross-connects at once and replaces a reload."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import loomnet.ocs.names as names
import loomnet.ocs.translation as translation
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.ocs.names import Pair, RangeMistake, pair_name, port_name
from loomnet.ocs.settings import Settings
from loomnet.ocs.switch import Operate
from loomnet.ocs.waiting import wait_until

T = TypeVar("T")
Row = dict[str, str]
MOST_LOSSES = 128 * 128  # rows that are listed where no cross-connect is named


@dataclass(frozen=True)
class Reconciled:
    """What a reconcile has done. `tuned`: whether all wanted cross-connects are tuned on both
    sides."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    generation: int
    tuned: bool


class Sonic:
    """One panel. A request is applied completely, as one generation, or raises UsageError and
    changes nothing. The message begins with "Invalid" for a malformed name, else with "Error"."""

    def __init__(self, operate: Operate, settings: Settings | None = None) -> None:
        self._operate, self.settings = operate, settings or Settings()

    def add(self, listed: str, mode: str = "update") -> str:
        if mode not in translation.MODES:
            raise UsageError(f"Invalid mode {quoted(mode)}: {', '.join(translation.MODES)}")

        def request(device: Any, now: int) -> str:
            pairs = names.pairs(listed, device.ports)
            self._change(device, now, [], pairs, mode)
            return f"cross-connect add: {len(pairs)} succeeded"

        return self._asked(request)

    def delete(self, listed: str) -> str:
        def request(device: Any, now: int) -> str:
            pairs = names.pairs(listed, device.ports)
            live = set(device.cross_connects())
            for each in pairs:
                if each not in self.settings.configured:
                    raise UsageError(
                        f"Error: cross-connect {pair_name(*each)} is live and not configured; add "
                        "it, then delete it"
                        if each in live
                        else f"Error: no cross-connect {pair_name(*each)}"
                    )
            self._change(device, now, pairs, [], "update")
            return f"cross-connect delete: {len(pairs)} succeeded"

        return self._asked(request)

    def reconcile(
        self,
        wanted: Iterable[str | Pair],
        *,
        timeout_s: float | None = 60,
        ending: threading.Event | None = None,
    ) -> Reconciled:
        """Gives the panel these cross-connects, by ids or duplex pairs (ports from 1), in at most
        one generation, and waits until they are tuned. Cross-connects that use other ports stay.
        If the panel has all of them already, it is sent nothing."""
        asked = list(wanted)

        def request(device: Any, now: int) -> tuple[Reconciled, list[Pair], int]:
            pairs = self._wanted(asked, device.ports)
            live, before = set(device.cross_connects()), device.generation
            ingress, egress = ({each[side] for each in pairs} for side in (0, 1))
            removed = [
                each
                for each in sorted(live)
                if each not in pairs and (each[0] in ingress or each[1] in egress)
            ]
            added = [each for each in pairs if each not in live]
            if removed or added or not set(pairs) <= self.settings.configured:
                self._change(device, now, removed, pairs, "update")
            lit = max((device.dark_until(a) for a, _ in pairs), default=now)
            done = device.generation if device.generation != before else before
            return (
                Reconciled(
                    tuple(pair_name(*each) for each in removed),
                    tuple(pair_name(*each) for each in added),
                    done,
                    False,
                ),
                pairs,
                lit,
            )

        done, pairs, lit = self._asked(request)
        wait_until(self._operate, lit, ending or threading.Event(), timeout_s)
        tuned = self._operate(
            lambda device, now: all(
                device.target(a, False) == b
                and device.status(a, False, now) == "tuned"
                and device.status(b, True, now) == "tuned"
                for a, b in pairs
            )
        )
        return Reconciled(done.removed, done.added, done.generation, tuned)

    def label(self, name: str, text: str) -> str:
        def request(device: Any, now: int) -> str:
            self.settings.label(names.port(name, device.ports), text)
            return "port label succeeded"

        return self._asked(request)

    def state(self, name: str, state: str) -> str:
        if state not in translation.PORT_STATES:
            raise UsageError(
                f"Invalid port state {quoted(state)}: {', '.join(translation.PORT_STATES)}"
            )

        def request(device: Any, now: int) -> str:
            port, out = names.port(name, device.ports)
            device.set_override(port, out, state, now)
            return "port state succeeded"

        return self._asked(request)

    # --- tables ----------------------------------------------------------------------------------

    def cross_connect_config(self) -> list[Row]:
        return self._asked(
            lambda device, now: [_sides(each) for each in sorted(self.settings.configured)]
        )

    def cross_connect_status(self) -> list[Row]:
        """The status of every cross-connect that the panel has or that is configured."""

        def request(device: Any, now: int) -> list[Row]:
            live = set(device.cross_connects())
            return [
                {
                    **_sides((a, b)),
                    "a_side_status": device.status(a, False, now) if (a, b) in live else "blocked",
                    "b_side_status": device.status(b, True, now) if (a, b) in live else "blocked",
                }
                for a, b in sorted(live | self.settings.configured)
            ]

        return self._asked(request)

    def half_circuits(self) -> list[str]:
        """Cross-connects whose other direction is missing. A duplex link needs both."""

        def request(device: Any, now: int) -> list[str]:
            live = device.cross_connects()
            return [pair_name(a, b) for a, b in live if (b, a) not in set(live)]

        return self._asked(request)

    def port_config(self) -> list[Row]:
        return self._asked(
            lambda device, now: [
                {
                    "id": port_name(*each),
                    "label": self.settings.labels.get(each, ""),
                    "state": device.override_of(*each),
                }
                for each in _ports(device)
            ]
        )

    def port_status(self) -> list[Row]:
        def row(device: Any, now: int, port: int, out: bool) -> Row:
            target = device.target(port, out)
            return {
                **_mapping(port, out),
                "target_simplex_port_id": "" if target is None else port_name(target, not out),
                "status": device.status(port, out, now),
            }

        return self._asked(lambda device, now: [row(device, now, *each) for each in _ports(device)])

    def port_mapping(self) -> list[Row]:
        return self._asked(lambda device, now: [_mapping(*each) for each in _ports(device)])

    def factory_insertion_loss(self, listed: str | None = None) -> list[Row]:
        """Insertion loss of the named cross-connects, or of all possible ones where none are
        named."""

        def request(device: Any, now: int) -> list[Row]:
            if listed is None and device.ports**2 > MOST_LOSSES:
                raise UsageError(f"Error: {device.ports**2} insertion losses: name some ids")
            pairs = (
                [(a, b) for a in range(device.ports) for b in range(device.ports)]
                if listed is None
                else names.pairs(listed, device.ports)
            )
            return [
                {
                    "id": pair_name(a, b),
                    "frequency_THz": translation.FREQUENCY_THZ,
                    "temperature_C": translation.TEMPERATURE_C,
                    "loss_dB": f"{device.insertion_loss(a, b) / 100:.2f}",
                    "accuracy_dB": translation.ACCURACY_DB,
                }
                for a, b in pairs
            ]

        return self._asked(request)

    def tables(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The databases by key `TABLE|id`, without the insertion losses."""

        def keyed(table: str, rows: list[Row]) -> dict[str, Any]:
            return {
                f"{table}|{row['id']}": {k: v for k, v in row.items() if k != "id"} for row in rows
            }

        status = self.cross_connect_status()
        return {
            "config": {
                **keyed(translation.CONFIG_PORT, self.port_config()),
                **keyed(translation.CONFIG_CROSS_CONNECT, self.cross_connect_config()),
            },
            "state": {
                **keyed(translation.STATE_PORT, self.port_status()),
                **keyed(translation.STATE_CROSS_CONNECT, status),
                **{
                    f"{translation.PHYSICAL_PATH}|{row['id']}": {
                        "physical_path": [row["a_side"], row["b_side"]]
                    }
                    for row in status
                },
            },
            "metadata": {"localhost": dict(translation.METADATA)},
        }

    # --- inside ----------------------------------------------------------------------------------

    def _asked(self, request: Callable[[Any, int], T]) -> T:
        return self._operate(request)

    def _change(
        self, device: Any, now: int, remove: list[Pair], add: list[Pair], mode: str
    ) -> None:
        try:
            device.change(remove, add, mode, now)
        except ValueError as error:
            raise UsageError(f"Error: {str(error).removeprefix('panel: ')}") from None
        settings = self.settings
        kept = set() if mode == "overwrite" else settings.configured - set(remove)
        ingress, egress = ({each[side] for each in add} for side in (0, 1))
        settings.configured = {
            each for each in kept if each[0] not in ingress and each[1] not in egress
        } | set(add)

    def _wanted(self, asked: list[str | Pair], ports: int) -> list[Pair]:
        found: list[Pair] = []
        for each in asked:
            if isinstance(each, str):
                found.extend(names.pairs(each, ports))
                continue
            a, b = each
            for number in each:
                if not 1 <= number <= ports:
                    raise RangeMistake(f"Error: no port {number}; the panel has ports 1 to {ports}")
            found.extend(dict.fromkeys([(a - 1, b - 1), (b - 1, a - 1)]))
        return names.once(dict.fromkeys(found))


def _ports(device: Any) -> list[tuple[int, bool]]:
    return [(port, out) for port in range(device.ports) for out in (False, True)]


def _sides(pair: Pair) -> Row:
    return {
        "id": pair_name(*pair),
        "a_side": port_name(pair[0], False),
        "b_side": port_name(pair[1], True),
    }


def _mapping(port: int, out: bool) -> Row:
    return {
        "id": port_name(port, out),
        "connector_type": translation.CONNECTOR,
        "connector_pin": f"{port + 1}.{2 if out else 1}",
    }
