"""The names of PyTorch that are no part of its public interface and that Loomnet replaces, answers
or calls: one table, with a check of each inside every run.

A new PyTorch may rename one of them, or go on without asking it. A job would then run with its
time or its bytes wrong and say nothing. So each name is tried in every rank before its script
begins: a name that is missing or has lost its effect ends the rank in one line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
import torch.autograd
import torch.autograd.graph
import torch.autograd.profiler
import torch.distributed as dist

from loomnet.base.torch_versions import TRIED

_replaced: dict[str, Any] = {}  # what stands in the place of a name, by the name


class PrivateNameError(RuntimeError):
    """A private name of PyTorch is not there, or PyTorch goes on without it."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"loomnet: {name}, a private name of PyTorch, {what} in PyTorch {torch.__version__}; "
            f"PyTorch {TRIED[0]} to {TRIED[-1]} are supported"
        )


@dataclass(frozen=True)
class PrivateName:
    """One name.

    Attributes:
        name: as PyTorch's sources spell it.
        why: what Loomnet needs it for.
        works: whether it has its effect; called in a rank before its script.
        replaced: a run that needs it puts another function in its place, by :func:`replace`.
    """

    name: str
    why: str
    works: Callable[[], bool]
    replaced: bool = True


def replace(owner: Any, name: str, wrap: Callable[[Any], Any], spelt: str = "") -> None:
    """Puts ``wrap(original)`` in the place of an attribute. `spelt`: the name in the table, where
    it is not the owner's own.

    Raises PrivateNameError where the attribute is not there.
    """
    spelt = spelt or f"{getattr(owner, '__name__', owner)}.{name}"
    original = getattr(owner, name, None)
    if original is None:
        raise PrivateNameError(spelt, "is not there")
    replacement = wrap(original)
    setattr(owner, name, replacement)
    _replaced[spelt] = replacement


def verify() -> None:
    """Tries every name of the table that this process has replaced, and those that are called.
    Raises PrivateNameError for the first one without its effect."""
    for each in NAMES:
        if each.replaced and each.name not in _replaced:
            continue  # for the live clock, say, nothing replaces the waits
        _try(each)


def verify_group(group: Any) -> None:
    """Tries what PyTorch's own functions find out of a group that is written in Python."""
    for name, works in GROUP_NAMES.items():
        _try(PrivateName(f"ProcessGroup.{name}", "", lambda works=works: works(group)))


def skip_code(code: CodeType) -> None:
    """Has torch.compile run the function of this code, not trace it: what torch._dynamo.disable
    does, without the seconds that importing torch._dynamo costs."""
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )
    except ImportError as error:
        raise PrivateNameError(
            "torch._C._dynamo.eval_frame.set_code_exec_strategy", f"is not there ({error})"
        ) from None
    set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def _try(each: PrivateName) -> None:
    try:
        works = each.works()
    except Exception as error:
        raise PrivateNameError(each.name, f"cannot be used ({error!r})") from error
    if not works:
        raise PrivateNameError(each.name, "has no effect")


# --- ways to find out ---------------------------------------------------------------------------
def _is(owner: Any, name: str, spelt: str) -> bool:
    """Whether a look-up of the name finds the replacement."""
    return inspect.getattr_static(owner, name) is _replaced[spelt]


def _read_by(function: Any, name: str, spelt: str = "") -> bool:
    """Whether a Python function of PyTorch looks the name up when it is called, and finds the
    replacement where there is one."""
    function = inspect.unwrap(function)
    if not any(name in code.co_names for code in _codes(function.__code__)):
        return False
    return not spelt or function.__globals__.get(name, _replaced[spelt]) is _replaced[spelt]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _future_asks(method: str) -> bool:
    """Whether futures of the public class, which calls its base, go through the replacement."""
    return _is(torch._C.Future, method, f"torch._C.Future.{method}") and _read_by(
        getattr(torch.futures.Future, method), method
    )


def _stores_ask(method: str) -> bool:
    """Whether all stores of PyTorch go through the replacement."""
    kinds = [
        getattr(dist, kind)
        for kind in ("TCPStore", "FileStore", "HashStore", "PrefixStore")
        if hasattr(dist, kind)
    ]
    return bool(kinds) and all(
        _is(kind, method, f"torch.distributed.Store.{method}") for kind in kinds
    )


def _backward_asks() -> bool:
    spelt = "torch.autograd._engine_run_backward"
    return _read_by(torch.autograd.backward, "_engine_run_backward", spelt) and _read_by(
        torch.autograd.grad, "_engine_run_backward", spelt
    )


def _graph_asks() -> bool:
    return _is(
        torch.autograd.graph, "_engine_run_backward", "torch.autograd.graph._engine_run_backward"
    )


_RENDEZVOUS_BY = ("env", "tcp")  # schemes of PyTorch's init_method=


def _rendezvous_asks() -> bool:
    import sys

    # torch.distributed has a function of that name, too.
    module = sys.modules["torch.distributed.rendezvous"]
    return all(
        _read_by(
            module._rendezvous_handlers[scheme],
            "_create_c10d_store",
            "torch.distributed.rendezvous._create_c10d_store",
        )
        for scheme in _RENDEZVOUS_BY
    )


def _names_are_mapped() -> bool:
    c10d = dist.distributed_c10d
    spelt = "torch.distributed.distributed_c10d.BackendConfig.__init__"
    return _is(c10d.BackendConfig, "__init__", spelt) and _read_by(
        c10d._new_process_group_helper, "BackendConfig"
    )


def _config_shows() -> bool:
    c10d = dist.distributed_c10d
    return _is(
        c10d.BackendConfig, "__repr__", "torch.distributed.distributed_c10d.BackendConfig.__repr__"
    )


def _rpc_asks() -> bool:
    from torch.distributed.rpc import TensorPipeRpcBackendOptions, backend_registry

    spelt = "torch.distributed.rpc.TensorPipeRpcBackendOptions.__init__"
    return _is(TensorPipeRpcBackendOptions, "__init__", spelt) and _read_by(
        backend_registry._tensorpipe_construct_rpc_backend_options_handler,
        "TensorPipeRpcBackendOptions",
    )


def _profiler_stops() -> bool:
    spelt = "torch.autograd.profiler._disable_profiler"
    return (
        _read_by(torch.autograd.profiler.profile.__exit__, "_disable_profiler", spelt)
        and torch.autograd._disable_profiler is _replaced["torch.autograd._disable_profiler"]
    )


def _profile_is_exported() -> bool:
    spelt = "torch.autograd.profiler.profile.export_chrome_trace"
    return _is(torch.autograd.profiler.profile, "export_chrome_trace", spelt) and _read_by(
        torch.profiler.profile.export_chrome_trace, "export_chrome_trace"
    )


def _hook_is_registered() -> bool:
    kind = torch.nn.parallel.DistributedDataParallel
    return _is(
        kind, "_register_builtin_comm_hook", "DistributedDataParallel._register_builtin_comm_hook"
    ) and callable(dist._register_comm_hook)


def _dynamo_skips() -> bool:
    skip_code(_dynamo_skips.__code__)
    return True


def _recorder_passes_over() -> bool:
    c10d: Any = dist.distributed_c10d
    attach = getattr(c10d, "_maybe_attach_flight_recorder", None)
    return attach is None or (
        _read_by(attach, "_FR_SELF_RECORDING_BACKENDS")
        and "loomnet" in c10d._FR_SELF_RECORDING_BACKENDS
    )


def _events_end() -> bool:
    return all(
        (
            torch.ops.profiler._call_end_callbacks_on_jit_fut is not None,
            callable(torch.autograd._record_function_with_args_enter),
            torch.autograd._profiler_enabled() in (True, False),
        )
    )


def _gloo_is_made() -> bool:
    gloo: Any = dist.ProcessGroupGloo
    return all(
        (
            hasattr(gloo._Options(), "_devices"),
            callable(gloo.create_device),
            callable(gloo.create_default_device),
        )
    )


# --- the table ----------------------------------------------------------------------------------
NAMES = (
    PrivateName(
        "torch.distributed.distributed_c10d.BackendConfig.__init__",
        "maps the names that scripts ask for to Loomnet's groups",
        _names_are_mapped,
    ),
    PrivateName(
        "torch.distributed.distributed_c10d.BackendConfig.__repr__",
        "dist.get_backend_config() answers what the script asked for",
        _config_shows,
    ),
    PrivateName(
        "torch.distributed.distributed_c10d._FR_SELF_RECORDING_BACKENDS",
        "since 2.15: keeps the flight recorder from groups that it cannot record",
        _recorder_passes_over,
        replaced=False,
    ),
    PrivateName(
        "torch.distributed.rendezvous._create_c10d_store",
        "ranks meet over the session before the first of them looks for the store",
        _rendezvous_asks,
    ),
    PrivateName(
        "torch.distributed.rpc.TensorPipeRpcBackendOptions.__init__",
        "leaves out transports of RPC that a rank's domain forbids",
        _rpc_asks,
    ),
    PrivateName(
        "torch._C.Future.done",
        "a poll that finds nothing costs emulated time",
        lambda: _future_asks("done"),
    ),
    PrivateName(
        "torch._C.Future.wait",
        "the clock moves while a thread waits for a future",
        lambda: _future_asks("wait"),
    ),
    PrivateName(
        "torch.autograd._engine_run_backward",
        "DDP's backward pass waits for its buckets in C++",
        _backward_asks,
    ),
    PrivateName(
        "torch.autograd.graph._engine_run_backward", "the same, of saved graphs", _graph_asks
    ),
    *(
        PrivateName(
            f"torch.distributed.Store.{method}",
            "a wait in a store costs emulated time and lets the clock move",
            lambda method=method: _stores_ask(method),
        )
        for method in ("wait", "get", "check", "multi_get", "queue_pop", "barrier")
    ),
    PrivateName(
        "torch.autograd._disable_profiler",
        "events of collectives end before the profiler gives their memory back",
        _profiler_stops,
    ),
    PrivateName(
        "torch.autograd.profiler.profile.export_chrome_trace",
        "a traced run has the script's own profile on its timeline",
        _profile_is_exported,
    ),
    PrivateName(
        "DistributedDataParallel._register_builtin_comm_hook",
        "the built-in hook FP16_COMPRESS reads a list that only C++ can make",
        _hook_is_registered,
    ),
    PrivateName(
        "torch.ops.profiler._call_end_callbacks_on_jit_fut",
        "a collective's event in a profile ends with the collective",
        _events_end,
        replaced=False,
    ),
    PrivateName(
        "torch._C._dynamo.eval_frame.set_code_exec_strategy",
        "torch.compile runs the methods of groups and does not trace them",
        _dynamo_skips,
        replaced=False,
    ),
    PrivateName(
        "torch.distributed.ProcessGroupGloo._Options",
        "stock Gloo binds to the host's address of the fabric",
        _gloo_is_made,
        replaced=False,
    ),
)


# What PyTorch asks of a group beside its operations, each by a function of PyTorch that asks it.
GROUP_NAMES: dict[str, Callable[[Any], bool]] = {
    "_device_types": lambda group: dist.distributed_c10d._device_capability(group) == ["cpu"],
    "getGroupName": lambda group: group.group_name == group._name,
    "_register_backend": lambda group: (
        group._gloo is None
        or (dist.ProcessGroup._get_backend(group, torch.device("meta")) is group._gloo)
    ),
    "_start_coalescing": lambda group: (
        _read_by(dist.distributed_c10d._coalescing_manager, "_start_coalescing")
        and _read_by(dist.distributed_c10d._coalescing_manager, "_end_coalescing")
    ),
}
