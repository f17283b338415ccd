"""
Astraea's features, actions, rewards and policies, as the engine has them.
"""

from __future__ import annotations

import collections.abc

import numpy
import numpy.typing

__all__: list[str] = [
    "LEAST_ACTION",
    "Policy",
    "frame",
    "global_state",
    "map_action",
    "map_action_int",
    "map_factor",
    "reward",
    "teacher_action",
]

class Policy:
    """
    A trained policy: dense layers with a leaky ReLU of slope 0.2 between them and tanh at the end; an action below LEAST_ACTION in size is 0.
    """

    @staticmethod
    def from_bytes(file: bytes) -> Policy:
        """
        The policy of an .astp file. Raises ValueError naming the field that is wrong.
        """

    def __init__(
        self,
        layers: collections.abc.Sequence[tuple[numpy.typing.ArrayLike, numpy.typing.ArrayLike]],
        *,
        features: str = "ours11",
        frames: int = 5,
        spacing: str = "every",
        interval_ms: int = 30,
        alpha: float = 0.02500000037252903,
        cwnd_min: int = 4,
        cwnd_max: int = 20000,
        batch_norm_folded: bool = False,
        action: str = "window",
        inner: str = "cubic",
        interval_rtts: float = 0.0,
    ) -> None:
        """
        `layers`: pairs of weights float32[out, in] and biases float32[out]; the rest is what the policy was trained with, as options of cc="astraea" have it (`alpha`: by action="factor" the factor_exponent; `interval_rtts`: quarters, up to 63.75). Raises ValueError for layers that do not fit, or weights that are not finite.
        """

    def act(self, inputs: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.float32]:
        """
        Actions float32[flows], -1 to 1, of inputs float32[flows, inputs].
        """

    def act_int16(self, inputs: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.int16]:
        """
        The same by whole numbers: actions times 32767, int16[flows]. Raises ValueError before quantise().
        """

    def quantise(self) -> None:
        """
        Adds the form of whole numbers, which kernels compute with: weights beyond -8 to 8 are clipped.
        """

    def to_bytes(self) -> bytes:
        """
        The .astp file of this policy.
        """

    @property
    def action(self) -> str:
        """
        What its actions are: "window", "rate" or "factor".
        """

    @property
    def alpha(self) -> float:
        """
        The largest change of the window or rate, as a share of it; by action="factor" the exponent.
        """

    @property
    def features(self) -> str:
        """
        Name of the feature set.
        """

    @property
    def frames(self) -> int:
        """
        Frames of an input.
        """

    @property
    def inner(self) -> str:
        """
        By action="factor", the control whose window actions multiply.
        """

    @property
    def inputs(self) -> int:
        """
        Features of all frames.
        """

    @property
    def interval_ms(self) -> int:
        """
        Milliseconds.
        """

    @property
    def interval_rtts(self) -> float:
        """
        The interval in least round trips; 0: interval_ms.
        """

    @property
    def layers(
        self,
    ) -> list[tuple[numpy.typing.NDArray[numpy.float32], numpy.typing.NDArray[numpy.float32]]]:
        """
        Pairs of weights float32[out, in] and biases float32[out].
        """

    @property
    def quantised(self) -> bool:
        """
        Whether it has the form of whole numbers.
        """

    @property
    def spacing(self) -> str:
        """
        How far back the frames lie: every interval, or 1, 2, 4, 8 … intervals.
        """

def frame(
    features: str = "ours11",
    *,
    avg_thr: float = 0.0,
    max_tput: float = 0.0,
    avg_urtt: float = 0.0,
    min_rtt: float = 0.0,
    srtt_x8: float = 0.0,
    loss: float = 0.0,
    packets_out: float = 0.0,
    retrans_out: float = 0.0,
    cwnd: float = 0.0,
    pacing: float = 0.0,
    rtt_slope: float = 0.0,
    sent: float = 0.0,
    delivered: float = 0.0,
) -> numpy.typing.NDArray[numpy.float32]:
    """
    The features of one interval, float32[10, 11, 8 or 3]. Rates in bytes per second, times in microseconds (srtt_x8: eight times the smoothed RTT), windows in packets, `sent` and `delivered` in bytes; 0 is no sample.
    """

def global_state(
    throughput: numpy.typing.ArrayLike,
    capacity: float,
    buffer: float,
    *,
    avg_urtt: numpy.typing.ArrayLike,
    base_rtt: numpy.typing.ArrayLike,
    loss: numpy.typing.ArrayLike,
    cwnd: numpy.typing.ArrayLike,
    buffer_in_packets: bool = False,
) -> numpy.typing.NDArray[numpy.float32]:
    """
    What the critic sees, float32[12]. `buffer`: bytes of the bottleneck's queue.
    """

def map_action(cwnd: int, action: float, alpha: float = 0.025) -> int:
    """
    The window in packets after an action of -1 to 1, not yet bounded.
    """

def map_action_int(cwnd: int, q: int, alpha_millionths: int = 25000) -> int:
    """
    The same by whole numbers: `q` is 32767 times the action.
    """

def map_factor(action: float, exponent: float = 2.0) -> float:
    """
    The factor of the inner control's window that an action of -1 to 1 is, 2^(exponent * action).
    """

def reward(
    throughput: numpy.typing.ArrayLike,
    capacity: float,
    *,
    avg_urtt: numpy.typing.ArrayLike,
    base_rtt: numpy.typing.ArrayLike,
    pacing: numpy.typing.ArrayLike,
    loss: numpy.typing.ArrayLike,
    c0: float = 0.1,
    c1: float = 0.02,
    c2: float = 1.0,
    c3: float = 0.02,
    c4: float = 0.01,
    clip: float = 0.1,
    beta: float = 0.5,
    lat_cap: float | None = 5.0,
    window: int = 5,
) -> dict:
    """
    The common reward of all flows and its terms, by name. `throughput`: [flows, intervals], this interval last; the other arrays [flows], in the units of frame(). `base_rtt`: d0; `loss`: dropped by queues; lat_cap=None: as published.
    """

def teacher_action(
    *,
    avg_thr: float,
    avg_urtt: float,
    min_rtt: float,
    loss: float,
    cwnd: float,
    interval_us: float = 30000.0,
    alpha: float = 0.025,
) -> float:
    """
    The action of policy="teacher", in the units of frame().
    """

LEAST_ACTION: float = 0.00390625
