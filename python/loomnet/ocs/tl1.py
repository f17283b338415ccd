"""A panel's TL1 commands: what each does to the device. Ingress ports are 1 to N and egress ports
N + 1 to 2 N of a panel of N ports, so that port n's fibres are n and N + n."""

from __future__ import annotations

import hmac
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from loomnet.base.version import version
from loomnet.ocs.settings import Attenuation, Flap, Monitor, Settings
from loomnet.ocs.switch import Operate
from loomnet.ocs.tl1_grammar import Command, Denied, parse, ports, sid_allowed, tid_at
from loomnet.ocs.waiting import wait_until

USERS = {"admin": "root"}  # who may log in, with what word
_MOST_LABEL, _MOST_FLAP_MS, _MOST_CYCLES, _MOST_DB = 25, 60_000, 10_000, 40.0
_MODES = ("NONE", "ABSOLUTE", "RELATIVE", "CONVERGED")
Lines = list[str]


class Session:
    """One client's dialogue with a panel. `answer(text)` carries a command out; a client that has
    not logged in is refused everything else."""

    def __init__(self, operate: Operate, settings: Settings, *, ending: threading.Event,
                 users: dict[str, str] | None = None) -> None:
        self._operate, self.settings, self._ending = operate, settings, ending
        self._users = USERS if users is None else users
        self.user: str | None = None
        self.timeout_min = 0  # 0: never
        self._size = operate(lambda device, now: device.ports)
        self._verbs: dict[str, Callable[[Command], Lines]] = {
            "ACT-USER": self._log_in, "CANC-USER": self._log_out, "ENT-PATCH": self._enter,
            "DLT-PATCH": self._delete, "RTRV-PATCH": self._patches,
            "OPR-PORT-SHUTTER": lambda c: self._shutter(c, True),
            "RLS-PORT-SHUTTER": lambda c: self._shutter(c, False),
            "RTRV-PORT-SHUTTER": self._shutters, "ED-PORT-LABEL": self._label,
            "DLT-PORT-LABEL": self._unlabel, "RTRV-PORT-LABEL": self._labels,
            "ENT-PORT-FLAP": self._flap, "OPR-PORT-FLAP": lambda c: self._flapping(c, True),
            "RLS-PORT-FLAP": lambda c: self._flapping(c, False), "RTRV-PORT-FLAP": self._flaps,
            "SET-PORT-ATTEN": self._attenuate, "RTRV-PORT-ATTEN": self._attenuations,
            "RTRV-PORT-POWER": self._powers, "SET-PORT-PMON": self._monitor,
            "RTRV-PORT-PMON": self._monitors, "RTRV-EQPT": self._equipment, "ED-EQPT": self._equip,
            "RTRV-NETYPE": self._type, "RTRV-INV": self._inventory, "RTRV-HDR": lambda c: [],
            "RTRV-TOD": lambda c: [time.strftime("%Y,%m,%d,%H,%M,%S", time.gmtime())],
            "SET-SID": self._name}

    def answer(self, text: str) -> tuple[str, Lines]:
        """The correlation tag and the lines of a command's answer, once what it changed is tuned.
        Raises Denied, whose third argument is the tag."""
        command = parse(text)
        try:
            if command.tid not in ("", self.settings.name):
                raise Denied("IITA", f"Parse error at offset {tid_at(text)} in command")
            does = self._verbs.get(command.verb)
            if does is None:
                raise Denied("IICT", "Parse error at offset 1 in command")
            if self.user is None and command.verb != "ACT-USER":
                raise Denied("PICC", "Log in first")
            return command.ctag, does(command)
        except Denied as refused:
            refused.args = (refused.code, refused.text, command.ctag)
            raise

    # --- parameters -------------------------------------------------------------------------------
    def _aid(self, command: Command) -> list[str]:
        """Both sides of an identifier, at the comma."""
        if not command.aid:
            raise Denied("IIAC", "Empty parameters")
        return [each.strip() for each in command.aid.split(",")]

    def _any(self, command: Command, first: int = 1, last: int | None = None) -> list[int]:
        text = command.aid
        if "," in text:
            return [port for part in text.split(",")
                    for port in ports(part.strip(), first, last or 2 * self._size)]
        return ports(text, first, last or 2 * self._size)

    def _required(self, command: Command, first: int = 1, last: int | None = None) -> list[int]:
        if not command.aid:
            raise Denied("IIAC", "Too few parameters (0/1)")
        return self._any(command, first, last)

    @staticmethod
    def _only(command: Command, *names: str) -> None:
        for name in command.named:
            if name not in names:
                raise Denied("IPNV", f"Unexpected parameter {name[:40]} in block 2")

    @staticmethod
    def _numbers(texts: Sequence[str], count: int, least: Sequence[int], most: Sequence[int]
                 ) -> list[int]:
        if len(texts) < count:
            raise Denied("IPMS", f"Too few parameters ({len(texts)}/{count}) in block 1")
        if len(texts) > count:
            raise Denied("IPNV", f"Unexpected parameter {texts[count][:40]} in block 1")
        found = []
        for text, low, high in zip(texts, least, most, strict=True):
            if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not low <= int(text) <= high:
                raise Denied("IDNV", f"Invalid value {text[:40]}")
            found.append(int(text))
        return found

    def _simplex(self, number: int) -> tuple[int, bool]:
        out = number > self._size
        return number - 1 - (self._size if out else 0), out

    # --- users ------------------------------------------------------------------------------------
    def _log_in(self, command: Command) -> Lines:
        word = self._users.get(command.aid.strip('"'))
        if not command.positional:
            raise Denied("IPMS", "Too few parameters (0/1) in block 1")
        given = command.positional[0].strip('"')
        if word is None or not hmac.compare_digest(word.encode(), given.encode(errors="replace")):
            raise Denied("PICC", "Login incorrect")
        self.user = command.aid.strip('"')
        return []

    def _log_out(self, command: Command) -> Lines:
        if command.aid.strip('"') != self.user:
            raise Denied("PICC", "Not logged in")
        self.user = None
        return []

    # --- patches ----------------------------------------------------------------------------------
    def _enter(self, command: Command) -> Lines:
        sides = self._aid(command)
        if len(sides) != 2:
            raise Denied("IIAC", f"Too few parameters ({len(sides)}/2)" if len(sides) < 2
                         else "Parameter not valid")
        size = self._size
        ingress, egress = ports(sides[0], 1, size), ports(sides[1], size + 1, 2 * size)
        if len(ingress) != len(egress):
            raise Denied("IDNV", "Bad parameter value")
        pairs = [(a - 1, b - 1 - size) for a, b in zip(ingress, egress, strict=True)]

        def patch(device: Any, now: int) -> int:
            try:
                device.change([], pairs, "update", now)
            except ValueError as error:
                raise Denied("SSTP", str(error)) from None
            inside, outside = ({each[side] for each in pairs} for side in (0, 1))
            self.settings.configured = {
                each for each in self.settings.configured
                if each[0] not in inside and each[1] not in outside} | set(pairs)
            return max(device.dark_until(a) for a, _ in pairs)

        lit = self._operate(patch)
        # So that a client's time from command to answer is that of the change.
        wait_until(self._operate, lit, self._ending)
        return []

    def _delete(self, command: Command) -> Lines:
        named = {self._simplex(number) for number in self._any(command)}

        def unpatch(device: Any, now: int) -> None:
            gone = [(a, b) for a, b in device.cross_connects()
                    if (a, False) in named or (b, True) in named]
            if gone:
                device.change(gone, [], "update", now)
            self.settings.configured -= set(gone)

        self._operate(unpatch)
        return []

    def _patches(self, command: Command) -> Lines:
        named = {self._simplex(number) for number in self._any(command)}
        return self._operate(lambda device, now: [
            f"{a + 1},{b + 1 + self._size}" for a, b in device.cross_connects()
            if (a, False) in named or (b, True) in named])

    # --- shutters, labels -------------------------------------------------------------------------
    def _shutter(self, command: Command, closed: bool) -> Lines:
        numbers = self._required(command)

        def shut(device: Any, now: int) -> None:
            for number in numbers:
                device.set_shutter(*self._simplex(number), closed, now)

        self._operate(shut)
        return []

    def _shutters(self, command: Command) -> Lines:
        numbers = self._any(command)
        return self._operate(lambda device, now: [
            f"{number}:{'CLOSED' if device.shutter_closed(*self._simplex(number)) else 'OPEN'}"
            for number in numbers])

    def _label(self, command: Command) -> Lines:
        numbers = self._required(command)
        self._only(command, "LABEL")
        if "LABEL" not in command.named:
            raise Denied("IPMS", "Too few parameters (0/1) in block 2")
        labels = command.named["LABEL"].split("&")
        if len(labels) != len(numbers):
            raise Denied("IDNV", "Bad parameter value")
        for label in labels:
            if not re.fullmatch(rf"[A-Za-z0-9 _./-]{{1,{_MOST_LABEL}}}", label, re.ASCII):
                raise Denied("IDNV", f"Invalid value {label[:40]}")

        def name(device: Any, now: int) -> None:
            for number, label in zip(numbers, labels, strict=True):
                self.settings.label(self._simplex(number), label)

        self._operate(name)
        return []

    def _unlabel(self, command: Command) -> Lines:
        numbers = self._any(command)

        def unname(device: Any, now: int) -> None:
            for number in numbers:
                self.settings.label(self._simplex(number), "")

        self._operate(unname)
        return []

    def _labels(self, command: Command) -> Lines:
        numbers = self._any(command)
        return self._operate(lambda device, now: [
            f"{number}:{label}" for number in numbers
            if (label := self.settings.labels.get(self._simplex(number)))])

    # --- flapping ---------------------------------------------------------------------------------
    def _flap(self, command: Command) -> Lines:
        numbers = self._required(command, 1, self._size)
        off, on, cycles = self._numbers(command.positional, 3, (1, 1, 1),
                                        (_MOST_FLAP_MS, _MOST_FLAP_MS, _MOST_CYCLES))

        def enter(device: Any, now: int) -> None:
            for number in numbers:
                self.settings.flaps[number - 1] = Flap(off, on, cycles)

        self._operate(enter)
        return []

    def _flapping(self, command: Command, begins: bool) -> Lines:
        numbers = self._required(command, 1, self._size)

        def flap(device: Any, now: int) -> None:
            scripts = [self.settings.flaps.get(number - 1) for number in numbers]
            if begins and None in scripts:
                raise Denied("SSTP", "No flap script entered")
            for number, script in zip(numbers, scripts, strict=True):
                if script is not None:
                    script.begun_ps = now if begins else None
                    device.set_shutter(number - 1, False, begins, now)

        self._operate(flap)
        return []

    def _flaps(self, command: Command) -> Lines:
        numbers = self._any(command, 1, self._size)
        return self._operate(lambda device, now: [
            f"{number}:{each.off_ms},{each.on_ms},{each.cycles},"
            f"{'ON' if each.begun_ps is not None and each.phase(now)[1] is not None else 'OFF'}"
            for number in numbers if (each := self.settings.flaps.get(number - 1))])

    # --- light ------------------------------------------------------------------------------------
    def _attenuate(self, command: Command) -> Lines:
        numbers = self._required(command, self._size + 1)
        self._only(command, "MODE", "LEVEL", "REFS")
        mode = command.named.get("MODE", "").upper()
        if not mode:
            raise Denied("IPMS", "Too few parameters (0/1) in block 2")
        if mode not in _MODES:
            raise Denied("IDNV", f"Invalid value {mode[:40]}")
        level = self._level(command, mode)
        reference = None
        if "REFS" in command.named:
            reference = ports(command.named["REFS"], 1, 2 * self._size)[0]

        def attenuate(device: Any, now: int) -> None:
            for number in numbers:
                port = number - 1 - self._size
                device.set_attenuation(port, 0.0, now)
                if mode in ("ABSOLUTE", "CONVERGED"):  # what the light that leaves shall have
                    power = device.power_dbm(port, now)
                    db = 0.0 if power is None else min(max(power - level, 0.0), _MOST_DB)
                else:
                    db = level if mode == "RELATIVE" else 0.0
                device.set_attenuation(port, db, now)
                self.settings.attenuations[port] = Attenuation(
                    mode, None if mode == "NONE" else level, reference)

        self._operate(attenuate)
        return []

    @staticmethod
    def _level(command: Command, mode: str) -> float:
        text = command.named.get("LEVEL")
        if text is None:
            if mode == "NONE":
                return 0.0
            raise Denied("IPMS", "Too few parameters (1/2) in block 2")
        if not re.fullmatch(r"-?[0-9]{1,3}(\.[0-9]{1,4})?", text, re.ASCII):
            raise Denied("IDNV", f"Invalid value {text[:40]}")
        level = float(text)
        least = 0.0 if mode == "RELATIVE" else -_MOST_DB
        if not least <= level <= _MOST_DB:
            raise Denied("IDNV", f"Invalid value {text[:40]}")
        return level

    def _attenuations(self, command: Command) -> Lines:
        numbers = self._any(command, self._size + 1)

        def shown(device: Any, now: int) -> Lines:
            found = []
            for number in numbers:
                each = self.settings.attenuations.get(number - 1 - self._size, Attenuation())
                level = "" if each.level is None else f"{each.level:.2f}"
                reference = "" if each.reference is None else str(each.reference)
                found.append(f"{number}:{each.mode},{level},{reference}")
            return found

        return self._operate(shown)

    def _powers(self, command: Command) -> Lines:
        numbers = self._required(command)

        def power(device: Any, now: int, number: int) -> float | None:
            port, out = self._simplex(number)
            if out:
                return device.power_dbm(port, now)
            target = device.target(port, False)  # what comes in is what leaves and what it lost
            leaves = None if target is None else device.power_dbm(target, now)
            return None if leaves is None or target is None else (
                leaves + device.insertion_loss(port, target) / 100 + device.attenuation(target))

        def shown(device: Any, now: int) -> Lines:
            rows = [(number, power(device, now, number)) for number in numbers]
            return [f"{number}:{-60.0 if each is None else each:.2f}" for number, each in rows]

        return self._operate(shown)

    def _monitor(self, command: Command) -> Lines:
        numbers = self._required(command)
        self._only(command, "WAVE", "OFFSET", "ATIME")
        if not command.named:
            raise Denied("IPMS", "Too few parameters (0/1) in block 2")
        values: dict[str, float] = {}
        for name, (least, most) in {"WAVE": (1260.0, 1675.0), "OFFSET": (-60.0, 60.0),
                                    "ATIME": (1.0, 12.0)}.items():
            if (text := command.named.get(name)) is not None:
                if not re.fullmatch(r"-?[0-9]{1,5}(\.[0-9]{1,4})?", text, re.ASCII) or not (
                        least <= float(text) <= most):
                    raise Denied("IDNV", f"Invalid value {text[:40]}")
                values[name] = float(text)

        def monitor(device: Any, now: int) -> None:
            for number in numbers:
                each = self.settings.monitors.setdefault(number, Monitor())
                each.wavelength_nm = values.get("WAVE", each.wavelength_nm)
                each.offset_db = values.get("OFFSET", each.offset_db)
                each.averaging = int(values.get("ATIME", each.averaging))

        self._operate(monitor)
        return []

    def _monitors(self, command: Command) -> Lines:
        numbers = self._required(command)

        def shown(device: Any, now: int) -> Lines:
            rows = [(number, self.settings.monitors.get(number, Monitor())) for number in numbers]
            return [f"{number}:{each.wavelength_nm:.2f},{each.offset_db:.2f},{each.averaging}"
                    for number, each in rows]

        return self._operate(shown)

    # --- the switch itself ------------------------------------------------------------------------
    def _equipment(self, command: Command) -> Lines:
        self._only(command, "PARAMETER")
        name = command.aid.upper()
        if not name:
            raise Denied("IIAC", "Empty parameters")
        if name not in ("SYSTEM", "BOOT", "TIMEOUT"):
            raise Denied("IIAC", "Parameter not valid")
        if name == "BOOT":
            return [f"BOOT:MODE={self.settings.boot}"]
        if name == "TIMEOUT":
            return [f"TIMEOUT:ADMIN={self.timeout_min}"]
        parameter = command.named.get("PARAMETER")
        if parameter is None:
            raise Denied("IPMS", "Too few parameters (0/1) in block 2")
        if parameter.upper() != "SIZE":
            raise Denied("IDNV", f"Invalid value {parameter[:40]}")
        return [f"SYSTEM:SIZE={self._size}x{self._size}"]

    def _equip(self, command: Command) -> Lines:
        name = command.aid.upper()
        if not name:
            raise Denied("IIAC", "Empty parameters")
        if name == "BOOT":
            self._only(command, "MODE")
            mode = command.named.get("MODE", "").upper()
            if not mode:
                raise Denied("IPMS", "Too few parameters (0/1) in block 2")
            if mode not in ("DARK", "RESTORE"):
                raise Denied("IDNV", f"Invalid value {mode[:40]}")

            def boot(device: Any, now: int) -> None:
                self.settings.boot = mode

            self._operate(boot)
            return []
        if name == "TIMEOUT":
            self._only(command, "ADMIN", "USER")
            if not command.named:
                raise Denied("IPMS", "Too few parameters (0/1) in block 2")
            minutes = self._numbers(list(command.named.values())[:1], 1, (0,), (60,))
            self.timeout_min = minutes[0]
            return []
        raise Denied("IIAC", "Parameter not valid")

    def _type(self, command: Command) -> Lines:
        return [f"Loomnet,panel-{self._size},OCS,{version()}"]

    def _inventory(self, command: Command) -> Lines:
        if command.aid.upper() != "OCS":
            raise Denied("IIAC", "Parameter not valid" if command.aid else "Empty parameters")
        return [f"OCS:TYPE=panel,SN={self.settings.name}-{self._size}"]

    def _name(self, command: Command) -> Lines:
        if not command.positional:
            raise Denied("IPMS", "Too few parameters (0/1) in block 1")
        if len(command.positional) > 1 or not sid_allowed(command.positional[0]):
            raise Denied("IDNV", f"Invalid value {','.join(command.positional)[:40]}")

        def name(device: Any, now: int) -> None:
            self.settings.name = command.positional[0]

        self._operate(name)
        return []
