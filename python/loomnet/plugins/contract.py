"""What a congestion control is given and may have, as tables: from the engine's own descriptions
and from what each transport gives to a control that looks at everything."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from loomnet.base.table import Table

# Methods beside on_ack and on_congestion that the engine calls where a class has them.
OPTIONAL: Mapping[str, str] = {
    "on_tick(now_ps)": "at the picosecond that `next_tick` named",
    "on_established(rtt_ps, now_ps)": "the first round trip is known, before the first `on_ack`",
    "on_restart(now_ps)": "the sender begins again after it had nothing in flight",
    "on_recovered(now_ps)": "all that was lost when a recovery began has arrived",
    "on_undo(now_ps)": "what was taken for lost had arrived after all: take the last cut back",
    "on_ports(live, total, now_ps)": "the number of the host's ports that have carrier has changed",
    "observe()": "a run that observes asks for finite numbers by name, or `None` for no value now; "
    "names of the engine's own series, as `cwnd`, are refused",
}
# Signals that `needs` may name.
NEEDS: Mapping[str, str] = {
    "rtt": "`ack.rtt_ps`",
    "delivery_rate": "`ack.rate_bps`, `ack.delivered_total`, `ack.app_limited`",
    "marks": "`ack.marked` and `ack.ce_delivered`, or `on_congestion` with kind `ecn`",
    "recovery": "the sender repairs losses and takes the window to `ssthresh` itself",
    "refusals": "`on_congestion` with kind `refused`",
    "notifications": "`on_congestion` with kind `notified`",
    "line_rate": "`flow.line_rate_bps` and `flow.network_rtt_ps`",
}


def fields(of: type) -> list[tuple[str, str]]:
    """(name, what it is) of what the engine hands to a class."""
    return [
        (name, inspect.getdoc(member) or "")
        for name, member in vars(of).items()
        if isinstance(member, property)
    ]


def table(of: type, given: Mapping[str, Mapping[str, object]] | None = None) -> Table:
    """Its fields with what each is and the transports over which it had a value: `given`, by
    transport and name."""
    rows = [
        {
            "field": name,
            "what": text,
            **(
                {}
                if given is None
                else {"over": ", ".join(each for each, seen in given.items() if seen.get(name))}
            ),
        }
        for name, text in fields(of)
    ]
    return Table(("field", "what", *(() if given is None else ("over",))), rows)
