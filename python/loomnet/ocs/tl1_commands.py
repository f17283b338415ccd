"""TL1's commands that act on a panel's device and settings."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import loomnet.ocs.tl1_ports as tl1_ports
from loomnet.base.version import version
from loomnet.ocs.access import Access
from loomnet.ocs.names import Simplex
from loomnet.ocs.settings import Attenuation, Flap, Monitor
from loomnet.ocs.tl1_ports import listed, number, simplex
from loomnet.ocs.tl1_syntax import Command, Denied, invalid_value, values_of

MOST_LABEL, MOST_SID = 25, 20  # characters
LEAST_FLAP_MS, MOST_FLAP_MS, MOST_CYCLES = 10, 600_000, 100_000
MOST_LEVEL_DB = 60.0
DARK_DBM = -60.0  # reading of a power monitor that has no light
BAND_NM = (1260.0, 1675.0)
MODES = ("NONE", "ABSOLUTE", "RELATIVE", "CONVERGED")
_LABEL = re.compile(rf"[A-Za-z0-9 _.+/-]{{1,{MOST_LABEL}}}")
_SID = re.compile(rf"[A-Za-z0-9 _.-]{{1,{MOST_SID}}}")
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_REAL = re.compile(r"-?[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)


@dataclass
class State:
    """State of one TL1 server, apart from the panel's settings. `timeouts` are in minutes; 0 means
    never."""

    timeouts: dict[str, int] = field(default_factory=lambda: {"ADMIN": 0, "USER": 0})


@dataclass
class Ask:
    """One command that is being carried out. The device is used inside run() only. `patched`:
    cross-connects whose light the answer waits for; `flaps`: whether the command has begun
    scripts."""

    command: Command
    access: Access
    state: State
    device: Any = None
    now_ps: int = 0
    patched: list[tuple[int, int]] = field(default_factory=list)
    flaps: bool = False

    @property
    def ports(self) -> int:
        return self.device.ports

    def listed(self, out: bool | None = None) -> list[int]:
        return listed(self.command.aid, self.ports, out)

    def simplexes(self) -> list[Simplex]:
        return [simplex(each, self.ports) for each in self.listed()]

    def name(self, *known: str) -> str:
        """The access identifier of a command whose identifier is a name."""
        aid = self.command.aid.upper()
        if not aid:
            raise Denied("IIAC", "Too few parameters (0/1)")
        if aid not in known:
            raise Denied("IIAC", f"Invalid name {self.command.aid[:20]}")
        return aid


@dataclass(frozen=True)
class Verb:
    """A command's verb. `run` returns the lines of the answer. `positional`: the least and the most
    parameters of block 1. `keys`: the parameters of block 2, of which `required` must be given.
    `changes`: the command changes the device, so it is noted in the run's report."""

    run: Callable[[Ask], list[str]]
    positional: tuple[int, int] = (0, 0)
    keys: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    changes: bool = False
    admin: bool = False


def whole(text: str, least: int, most: int) -> int:
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise invalid_value(text)
    return int(text)


def real(text: str, least: float, most: float) -> float:
    if not _REAL.fullmatch(text) or not least <= float(text) <= most:
        raise invalid_value(text)
    return float(text)


# --- cross-connects -------------------------------------------------------------------------------


def change(ask: Ask, remove: list[tuple[int, int]], add: list[tuple[int, int]]) -> None:
    try:
        ask.device.change(remove, add, "update", ask.now_ps)
    except ValueError as error:
        raise Denied("SSTP", str(error).removeprefix("panel: ")) from None
    hold_levels(ask)


def ent_patch(ask: Ask) -> list[str]:
    wanted = tl1_ports.pairs(ask.command.aid, ask.ports)
    change(ask, [], wanted)
    ask.patched = wanted
    return []


def dlt_patch(ask: Ask) -> list[str]:
    chosen = set(ask.listed())
    gone = [
        (a, b)
        for a, b in ask.device.cross_connects()
        if a + 1 in chosen or b + 1 + ask.ports in chosen
    ]
    if gone:
        change(ask, gone, [])
    return []


def rtrv_patch(ask: Ask) -> list[str]:
    return tl1_ports.named_pairs(ask.device.cross_connects(), ask.ports, set(ask.listed()))


# --- shutters, labels -----------------------------------------------------------------------------


def set_shutters(ask: Ask, closed: bool) -> list[str]:
    for port, out in ask.simplexes():
        ask.device.set_shutter(port, out, closed, ask.now_ps)
    return []


def rtrv_shutters(ask: Ask) -> list[str]:
    return [
        f"{number(each, ask.ports)}:{'CLOSED' if ask.device.shutter_closed(*each) else 'OPEN'}"
        for each in ask.simplexes()
    ]


def ed_label(ask: Ask) -> list[str]:
    ports, labels = ask.simplexes(), values_of(ask.command.keyed["LABEL"])
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise invalid_value(label)
    if len(labels) != len(ports):
        raise Denied("IDNV", "Bad parameter value")
    for port, label in zip(ports, labels, strict=True):
        ask.access.settings.label(port, label)
    return []


def dlt_label(ask: Ask) -> list[str]:
    for port in ask.simplexes():
        ask.access.settings.labels.pop(port, None)
    return []


def rtrv_label(ask: Ask) -> list[str]:
    labels = ask.access.settings.labels
    return [
        f"{number(each, ask.ports)}:{labels[each]}" for each in ask.simplexes() if each in labels
    ]


# --- flapping -------------------------------------------------------------------------------------


def ent_flap(ask: Ask) -> list[str]:
    ports = ask.listed(False)
    off, on = (whole(text, LEAST_FLAP_MS, MOST_FLAP_MS) for text in ask.command.positional[:2])
    cycles = whole(ask.command.positional[2], 1, MOST_CYCLES)
    for each in ports:
        _stop_flap(ask, each - 1)
        ask.access.settings.flaps[each - 1] = Flap(off, on, cycles)
    return []


def opr_flap(ask: Ask) -> list[str]:
    flaps = ask.access.settings.flaps
    ports = [each - 1 for each in ask.listed(False) if ask.command.aid or each - 1 in flaps]
    if not ports or any(each not in flaps for each in ports):
        raise Denied("SSTP", "No flap is entered for the port")
    for each in ports:
        flaps[each].begun_ps = ask.now_ps
        ask.device.set_shutter(each, False, True, ask.now_ps)
    ask.flaps = True
    return []


def rls_flap(ask: Ask) -> list[str]:
    for each in ask.listed(False):
        _stop_flap(ask, each - 1)
    return []


def _stop_flap(ask: Ask, port: int) -> None:
    flap = ask.access.settings.flaps.get(port)
    if flap is not None and flap.begun_ps is not None:
        flap.begun_ps = None
        ask.device.set_shutter(port, False, False, ask.now_ps)


def rtrv_flap(ask: Ask) -> list[str]:
    flaps = ask.access.settings.flaps
    return [
        f"{each}:{flap.off_ms},{flap.on_ms},{flap.cycles}"
        for each in ask.listed(False)
        if (flap := flaps.get(each - 1)) is not None
    ]


# --- light ----------------------------------------------------------------------------------------


def set_atten(ask: Ask) -> list[str]:
    keyed, ports = ask.command.keyed, ask.listed(True)
    mode = keyed["MODE"].upper()
    if mode not in MODES:
        raise invalid_value(keyed["MODE"])
    if mode == "NONE" and len(keyed) > 1:
        raise Denied("IPNV", "Parameter not valid")
    if mode != "NONE" and "LEVEL" not in keyed:
        raise Denied("IPMS", "Too few parameters (0/1) in block 2")
    if mode == "ABSOLUTE" and "REFS" in keyed:
        raise Denied("IPNV", "Parameter not valid")
    level = real(keyed["LEVEL"], 0, MOST_LEVEL_DB) if mode != "NONE" else None
    refs: list[int] | list[None] = [None] * len(ports)
    if "REFS" in keyed:
        if not keyed["REFS"]:
            raise invalid_value("")
        refs = tl1_ports.one_side(keyed["REFS"], ask.ports, None)
        refs = refs * len(ports) if len(refs) == 1 else refs
        if len(refs) != len(ports):
            raise Denied("IDNV", "Bad parameter value")
    for each, ref in zip(ports, refs, strict=True):
        ask.access.settings.attenuations[each - 1 - ask.ports] = Attenuation(mode, level, ref)
    hold_levels(ask, {each - 1 - ask.ports for each in ports})
    return []


def hold_levels(ask: Ask, fresh: set[int] | None = None) -> None:
    """Sets the attenuators: NONE to nothing, ABSOLUTE to the level, RELATIVE so that the light that
    leaves is so much below that of the reference, by default the light that comes in; CONVERGED is
    RELATIVE once, when it is asked for (`fresh`)."""
    device, now = ask.device, ask.now_ps
    for egress, each in ask.access.settings.attenuations.items():
        if each.mode == "CONVERGED" if fresh is None else egress not in fresh:
            continue
        wanted: float | None = 0.0 if each.level is None else each.level
        if each.mode in ("RELATIVE", "CONVERGED"):
            wanted = _below_reference(device, egress, each, now)
        if wanted is not None and abs(wanted - device.attenuation(egress)) > 1e-9:
            device.set_attenuation(egress, wanted, now)


def _below_reference(device: Any, egress: int, each: Attenuation, now_ps: int) -> float | None:
    """None where there is no light to go by."""
    ingress = device.target(egress, True)
    if ingress is None or each.level is None:
        return None
    reference = (
        (ingress, False) if each.reference is None else simplex(each.reference, device.ports)
    )
    whole_dbm = device.transmit_power(ingress) - device.insertion_loss(ingress, egress) / 100
    power = (
        device.power_dbm(reference[0], now_ps)
        if reference[1]
        else device.transmit_power(reference[0])
    )
    return None if power is None else max(whole_dbm - (power - each.level), 0.0)


def rtrv_atten(ask: Ask) -> list[str]:
    lines = []
    for each in ask.listed(True):
        found = ask.access.settings.attenuations.get(each - 1 - ask.ports, Attenuation())
        level = "" if found.level is None else f"{found.level:.2f}"
        lines.append(
            f"{each}:{found.mode},{level},{'' if found.reference is None else found.reference}"
        )
    return lines


def rtrv_power(ask: Ask) -> list[str]:
    lines = []
    for each in ask.listed():
        port, out = simplex(each, ask.ports)
        power = ask.device.power_dbm(port, ask.now_ps) if out else ask.device.transmit_power(port)
        found = DARK_DBM if power is None or not math.isfinite(power) else max(power, DARK_DBM)
        offset = ask.access.settings.monitors.get(each, Monitor()).offset_db
        lines.append(f"{each}:{found + offset:.2f}")
    return lines


def set_pmon(ask: Ask) -> list[str]:
    keyed, ports = ask.command.keyed, ask.listed()
    if not keyed:
        raise Denied("IPMS", "Too few parameters (0/1) in block 2")
    wave = real(keyed["WAVE"], *BAND_NM) if "WAVE" in keyed else None
    offset = real(keyed["OFFSET"], -60, 60) if "OFFSET" in keyed else None
    averaging = whole(keyed["AVG"], 1, 64) if "AVG" in keyed else None
    for each in ports:
        monitor = ask.access.settings.monitors.setdefault(each, Monitor())
        monitor.wavelength_nm = monitor.wavelength_nm if wave is None else wave
        monitor.offset_db = monitor.offset_db if offset is None else offset
        monitor.averaging = monitor.averaging if averaging is None else averaging
    return []


def rtrv_pmon(ask: Ask) -> list[str]:
    lines = []
    for each in ask.listed():
        found = ask.access.settings.monitors.get(each, Monitor())
        lines.append(f"{each}:{found.wavelength_nm:.1f},{found.offset_db:.1f},{found.averaging}")
    return lines


# --- the device -----------------------------------------------------------------------------------


def rtrv_eqpt(ask: Ask) -> list[str]:
    name = ask.name("SYSTEM", "BOOT", "TIMEOUT", "ATTEN")
    given = ask.command.keyed["PARAMETER"]
    settings, parameter = ask.access.settings, given.upper()
    known = {
        "SYSTEM": {"SIZE": f"{ask.ports}x{ask.ports}"},
        "BOOT": {"MODE": settings.boot},
        "ATTEN": {"CONFIG": MODES[-1]},  # the last one stands for all of them
        "TIMEOUT": {key: str(value) for key, value in ask.state.timeouts.items()},
    }[name]
    if parameter not in known:
        raise invalid_value(given)
    return [f"{name}:{parameter}={known[parameter]}"]


def ed_eqpt(ask: Ask) -> list[str]:
    keyed = ask.command.keyed
    known = {"BOOT": ("MODE",), "TIMEOUT": ("ADMIN", "USER")}[ask.name("BOOT", "TIMEOUT")]
    for key in keyed:
        if key not in known:
            raise Denied("IPNV", f"Unexpected parameter {key[:20]} in block 2")
    if not keyed:
        raise Denied("IPMS", "Too few parameters (0/1) in block 2")
    if known == ("MODE",):
        if keyed["MODE"].upper() not in ("DARK", "RESTORE"):
            raise invalid_value(keyed["MODE"])
        ask.access.settings.boot = keyed["MODE"].upper()
    else:
        ask.state.timeouts |= {key: whole(value, 0, 60) for key, value in keyed.items()}
    return []


def rtrv_netype(ask: Ask) -> list[str]:
    return [f"Loomnet,emulated-{ask.ports}x{ask.ports},OCS,{version()}"]


def rtrv_inv(ask: Ask) -> list[str]:
    ask.name("OCS")
    return [f"OCS::SN=LOOMNET-{ask.access.settings.name},PN=emulated-{ask.ports}x{ask.ports}"]


def set_sid(ask: Ask) -> list[str]:
    name = ask.command.positional[0]
    if not _SID.fullmatch(name) or name != name.strip():
        raise invalid_value(name)
    ask.access.settings.name = name
    return []


def rtrv_tod(_ask: Ask) -> list[str]:
    return [time.strftime("SYSTEM:%y-%m-%d,%H-%M-%S", time.gmtime())]


VERBS = {
    "ENT-PATCH": Verb(ent_patch, changes=True),
    "DLT-PATCH": Verb(dlt_patch, changes=True),
    "RTRV-PATCH": Verb(rtrv_patch),
    "OPR-PORT-SHUTTER": Verb(lambda ask: set_shutters(ask, True), changes=True),
    "RLS-PORT-SHUTTER": Verb(lambda ask: set_shutters(ask, False), changes=True),
    "RTRV-PORT-SHUTTER": Verb(rtrv_shutters),
    "ED-PORT-LABEL": Verb(ed_label, keys=("LABEL",), required=("LABEL",), changes=True),
    "DLT-PORT-LABEL": Verb(dlt_label, changes=True),
    "RTRV-PORT-LABEL": Verb(rtrv_label),
    "ENT-PORT-FLAP": Verb(ent_flap, positional=(3, 3), changes=True),
    "OPR-PORT-FLAP": Verb(opr_flap, changes=True),
    "RLS-PORT-FLAP": Verb(rls_flap, changes=True),
    "RTRV-PORT-FLAP": Verb(rtrv_flap),
    "SET-PORT-ATTEN": Verb(
        set_atten, keys=("MODE", "LEVEL", "REFS"), required=("MODE",), changes=True
    ),
    "RTRV-PORT-ATTEN": Verb(rtrv_atten),
    "RTRV-PORT-POWER": Verb(rtrv_power),
    "SET-PORT-PMON": Verb(set_pmon, keys=("WAVE", "OFFSET", "AVG"), changes=True),
    "RTRV-PORT-PMON": Verb(rtrv_pmon),
    "RTRV-EQPT": Verb(rtrv_eqpt, keys=("PARAMETER",), required=("PARAMETER",)),
    "ED-EQPT": Verb(ed_eqpt, keys=("MODE", "ADMIN", "USER"), admin=True, changes=True),
    "RTRV-NETYPE": Verb(rtrv_netype),
    "RTRV-INV": Verb(rtrv_inv),
    "RTRV-HDR": Verb(lambda ask: []),
    "RTRV-TOD": Verb(rtrv_tod),
    "SET-SID": Verb(set_sid, positional=(1, 1), admin=True, changes=True),
}


def check_parameters(command: Command, verb: Verb) -> None:
    """Raises Denied for parameters that the verb does not have, or that are missing."""
    least, most = verb.positional
    given = command.positional
    if len(given) > most:
        raise Denied("IPNV", f"Unexpected parameter {given[most][:40]} in block 1")
    if len(given) < least:
        raise Denied("IPMS", f"Too few parameters ({len(given)}/{least}) in block 1")
    for key in command.keyed:
        if key not in verb.keys:
            raise Denied("IPNV", f"Unexpected parameter {key[:40]} in block 2")
    for key in verb.required:
        if key not in command.keyed:
            raise Denied("IPMS", f"Too few parameters (0/{len(verb.required)}) in block 2")


def run(ask: Ask, verb: Verb, noted: str) -> list[str]:
    """Carries the command out and returns the lines of its answer. Raises Denied."""

    def touch(device: Any, now_ps: int) -> list[str]:
        ask.device, ask.now_ps = device, now_ps
        return verb.run(ask)

    operate = ask.access.noted(noted) if verb.changes else ask.access.operate
    try:
        return operate(touch)
    finally:
        ask.device = None
