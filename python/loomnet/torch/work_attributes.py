"""What a script states of the operations it starts, and what of their bytes has arrived.

The attributes of an operation are those of its thread at the moment of the call. They travel with
its bytes to the network, where transports, switch programs and traces read them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

MOST_PRIORITY = 255
MOST_LAYER = 65534
_MOST_TAG = 2**32 - 1


class Stated(NamedTuple):
    """Attributes of one call, in the order in which ``RankSession.start`` takes them."""

    layer: int | None = None
    priority: int | None = None
    loss_tolerance: float = 0.0
    tag: int = 0


class Written(NamedTuple):
    """Contiguous memory that an operation writes: its address, and the shape and element size in
    bytes of the tensor for which it stands."""

    address: int
    shape: Sequence[int]
    element: int


class Delivery:
    """What one call has received from its peers. Only a call that has ended well can say it.

    Attributes:
        name: the call, as in ``all_reduce(float32, 1000 elements, sum)``.
    """

    def __init__(self, raw: Any, written: Sequence[Written]) -> None:
        self.name: str = raw.name
        self._raw = raw
        self._written = tuple(written)

    @property
    def done(self) -> bool:
        return self._raw.done

    @property
    def expected(self) -> int:
        """Bytes of tensors that peers have sent to this rank for the call."""
        return self._ended().expected

    @property
    def delivered(self) -> int:
        """Of the bytes expected, those that have arrived."""
        return self._ended().delivered

    def mask(self) -> list[torch.Tensor]:
        """One boolean tensor for each tensor that the call has written, of its shape.

        True: every byte that a peer has sent to this rank for the element has arrived. False: some
        bytes were lost; lost bytes count as zeros. A rank knows of its own losses alone: in a
        ring, a sum that has lost a contribution at one rank is True at the ranks that receive the
        sum. A loss in a partial sum that the call only passes on (``reduce_scatter``, ``reduce``)
        is counted in `delivered` and is in no mask.
        """
        import torch

        missing = self._ended().missing
        masks = []
        for address, shape, element in self._written:
            mask = torch.ones(torch.Size(shape).numel(), dtype=torch.bool)
            for first, count in missing:
                begin, end = first - address, first - address + count
                if 0 <= begin < mask.numel() * element:
                    mask[begin // element : -(-end // element)] = False
            masks.append(mask.reshape(torch.Size(shape)))
        return masks

    def _ended(self) -> Any:
        if not self._raw.done:
            raise RuntimeError(
                f"loomnet: {self.name} is under way; wait for it before you ask what has arrived"
            )
        if not self._raw.ok:
            raise RuntimeError(
                f"loomnet: {self.name} has failed and cannot say what has arrived: "
                f"{self._raw.message}"
            )
        return self._raw


class Deliveries:
    """What the calls inside a context have received; see :func:`attributes`.

    Attributes:
        calls: a :class:`Delivery` for each call, in order.
    """

    def __init__(self) -> None:
        self.calls: list[Delivery] = []

    @property
    def expected(self) -> int:
        """Sum over the calls, in bytes."""
        return sum(call.expected for call in self.calls)

    @property
    def delivered(self) -> int:
        """Sum over the calls, in bytes."""
        return sum(call.delivered for call in self.calls)

    def mask(self) -> list[torch.Tensor]:
        """The masks of all calls, one after the other; see :meth:`Delivery.mask`."""
        return [mask for call in self.calls for mask in call.mask()]


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stated = Stated()
        self.open: tuple[Deliveries, ...] = ()


_thread = _Thread()


def stated() -> Stated:
    """Attributes of a call that this thread makes now."""
    return _thread.stated


def record_call(raw: Any, written: Sequence[Written]) -> None:
    """A call of this thread has been started as `raw`: the contexts around it learn of it."""
    if _thread.open:
        delivery = Delivery(raw, written)
        for deliveries in _thread.open:
            deliveries.calls.append(delivery)


@contextmanager
def attributes(
    *,
    priority: int | None = None,
    layer: int | None = None,
    loss_tolerance: float | None = None,
    tag: int | None = None,
) -> Iterator[Deliveries]:
    """States attributes of every ``torch.distributed`` call that this thread makes inside.

    A call keeps the attributes of the moment at which it is made, an asynchronous one too. What an
    inner context leaves out is as in the context around it. Calls that Loomnet's network does not
    carry, such as those of a stock Gloo group, take no notice.

    Args:
        priority: 0 to 255, the most urgent; not stated by default.
        layer: of the model, 0 to 65534; not stated by default.
        loss_tolerance: share of the bytes of each write that the transport may give up, 0 to 1; by
            default 0, none. All ranks of a call should state the same. A transport that gives up
            nothing delivers everything.
        tag: the script's own number, 0 to 2**32 - 1.

    Returns:
        A context manager that yields the :class:`Deliveries` of the calls inside.

    Raises:
        ValueError: an attribute out of its range.

    Example::

        with loomnet.torch.attributes(layer=3, priority=9, loss_tolerance=0.01) as seen:
            dist.all_reduce(gradient)
        kept = seen.mask()[0]             # of the shape of gradient
    """
    given = {
        "priority": _number("priority", priority, MOST_PRIORITY),
        "layer": _number("layer", layer, MOST_LAYER),
        "loss_tolerance": _share(loss_tolerance),
        "tag": _number("tag", tag, _MOST_TAG),
    }
    before, around = _thread.stated, _thread.open
    deliveries = Deliveries()
    _thread.stated = before._replace(**{k: v for k, v in given.items() if v is not None})
    _thread.open = (*around, deliveries)
    try:
        yield deliveries
    finally:
        _thread.stated, _thread.open = before, around


def _number(name: str, value: int | None, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(
            f"loomnet.torch.attributes: {name} must be a whole number from 0 to "
            f"{most}, not {value!r}"
        )
    return value


def _share(value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(
            f"loomnet.torch.attributes: loss_tolerance must be a share from 0 to 1, not {value!r}"
        )
    return float(value)
