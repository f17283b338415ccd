"""The clocks that a script reads: time.time, time.perf_counter and their _ns forms.

On the virtual clock they are this machine's wall time, which says nothing of the emulated network.
A rank's log says so once. With ``TorchJob(script_time="emulated")`` they are the emulated time
where a file outside the standard library and PyTorch calls them, so that a script's own tokens
per second are those of the emulated cluster. ``time.monotonic``, ``time.sleep``, ``datetime`` and
all time limits stay on wall time, as PyTorch and the standard library need them.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import sysconfig
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import loomnet.torch.connection as _connection
from loomnet.base import rank_environment as env
from loomnet.torch import children

NAMES = ("time", "time_ns", "perf_counter", "perf_counter_ns")
_ADVICE = (
    'emulated seconds are loomnet.torch.now(); TorchJob(script_time="emulated") gives '
    "them to the script's own clocks"
)
_OWN_PACKAGES = ("torch", "torchgen", "functorch", "loomnet")
# Of the standard library, but called from scripts: `timeit.default_timer` is time.perf_counter.
_FOR_SCRIPTS = frozenset({"timeit", "__main__"})


def install() -> None:
    """Inside a run, once: the clocks as the job's script_time asks."""
    global _emulated
    mode, _, epoch = os.environ.get(env.SCRIPT_TIME, "wall").partition(" ")
    if mode == "emulated":
        _emulated = _Emulated(int(epoch))
        _replace(
            {
                getattr(time, name): _for_scripts(getattr(time, name), getattr(_emulated, name))
                for name in NAMES
            }
        )
    elif os.environ.get(env.CLOCK) == "virtual":
        _replace({getattr(time, name): _telling(getattr(time, name), name) for name in NAMES})


class _Emulated:
    """The four clocks, from the emulated time since the job's start.

    Args:
        epoch_ns: wall time that the job's start is taken for, the same in all ranks.
    """

    def __init__(self, epoch_ns: int) -> None:
        self._epoch_ns = epoch_ns
        self._started_ps = int(os.environ.get(env.STARTED, "0"))
        self._wall_ns, self._said = time.perf_counter_ns, False

    def perf_counter_ns(self) -> int:
        link = _connection.existing()  # a forked child reads its parent's
        if link is None and children.is_child():
            return self._of_this_machine()
        session = (link or _connection.connection()).session
        return (session.now_ps - self._started_ps) // 1000

    def _of_this_machine(self) -> int:
        if not self._said:
            self._said = True
            print(
                f"loomnet: script_time: process {os.getpid()}, a child of a rank, has this "
                "machine's clock",
                file=sys.stderr,
                flush=True,
            )
        return self._wall_ns()

    def perf_counter(self) -> float:
        return self.perf_counter_ns() / 1e9

    def time_ns(self) -> int:
        return self._epoch_ns + self.perf_counter_ns()

    def time(self) -> float:
        return self.time_ns() / 1e9


def seconds() -> float:
    """What time.perf_counter() shows to the script."""
    return time.perf_counter() if _emulated is None else _emulated.perf_counter()


_emulated: _Emulated | None = None


def _for_scripts(original: Callable[[], Any], emulated: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(original)
    def read() -> Any:
        if _is_script(sys._getframe(1).f_code.co_filename):
            return emulated()
        return original()

    return read


_told = False


def _telling(original: Callable[[], Any], name: str) -> Callable[[], Any]:
    """The same clock; the first call from a file of the script's own is told in the rank's log."""

    @functools.wraps(original)
    def read() -> Any:
        global _told
        if not _told:
            frame = sys._getframe(1)
            file = frame.f_code.co_filename
            if _is_script(file) and not _is_installed(file):
                _told = True
                for each, clock in _originals.items():
                    setattr(time, each, clock)
                print(
                    f"loomnet: {os.path.basename(file)}:{frame.f_lineno} reads time.{name}, the "
                    f"wall time of this machine; {_ADVICE}",
                    file=sys.stderr,
                    flush=True,
                )
        return original()

    return read


def _folders() -> tuple[str, ...]:
    """Where the standard library and PyTorch lie."""
    found = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")}
    for name in _OWN_PACKAGES:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            found.add(os.path.dirname(file))
    return tuple(os.path.join(folder, "") for folder in found)


@functools.cache
def _not_scripts() -> tuple[str, ...]:
    return _folders()


def _is_installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file


@functools.cache
def _is_script(file: str) -> bool:
    """Whether code of this file is of neither the standard library nor PyTorch."""
    if file.startswith("<frozen"):
        return False
    inside = [folder for folder in _not_scripts() if file.startswith(folder)]
    # Installed packages lie inside the standard library's folder.
    return all(_is_installed(file[len(folder) - 1 :]) for folder in inside)


_originals: dict[str, Callable[[], Any]] = {}


def _replace(clocks: dict[Any, Any]) -> None:
    """Puts each clock in the place of the original: in `time`, and where modules that were imported
    before hold it. What still holds one is named in the rank's log."""
    _originals.update((name, getattr(time, name)) for name in NAMES)
    for name in NAMES:
        setattr(time, name, clocks[_originals[name]])
    for module in list(sys.modules.values()):
        if (
            isinstance(module, types.ModuleType)
            and module is not time
            and _is_theirs(module.__name__)
        ):
            space = module.__dict__
            for name, value in list(space.items()):
                if isinstance(value, types.BuiltinFunctionType) and value in clocks:
                    space[name] = clocks[value]
    if os.environ.get(env.SCRIPT_TIME, "wall") != "wall" and (kept := sorted(set(_keepers()))):
        print(
            f"loomnet: script_time: {', '.join(kept)} had taken a clock before PyTorch was "
            "imported and keeps this machine's",
            file=sys.stderr,
            flush=True,
        )


def _is_theirs(module: str) -> bool:
    """Whether a module is of neither the standard library nor PyTorch."""
    package = module.partition(".")[0]
    return module in _FOR_SCRIPTS or (
        package not in sys.stdlib_module_names and package not in _OWN_PACKAGES
    )


def _keepers() -> Iterator[str]:
    """Functions and objects of a script or its packages that hold an original clock."""
    for holder in gc.get_referrers(*_originals.values()):
        if holder is _originals or not isinstance(holder, (tuple, dict)):
            continue
        for owner in gc.get_referrers(holder):
            if isinstance(owner, types.FunctionType):
                module, name = owner.__module__, owner.__qualname__
                if holder is not owner.__defaults__ and holder is not owner.__kwdefaults__:
                    continue
            elif isinstance(owner, type):
                module, name = owner.__module__, owner.__qualname__
            elif getattr(owner, "__dict__", None) is holder and not isinstance(
                owner, types.ModuleType
            ):
                module, name = type(owner).__module__, type(owner).__qualname__
            else:
                continue
            if isinstance(module, str) and _is_theirs(module) and module != "timeit":
                yield f"{module}.{name}"
