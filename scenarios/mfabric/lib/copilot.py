"""Predicts the expert loads of a layer from those of the layer before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.systems.mixnet.drift import MOST_EXPERTS


class Copilot:
    """MixNet's Copilot: a column-stochastic matrix P, fitted to the last records by least squares,
    with loads(layer) = P loads(layer - 1).

    Args:
        experts: of the layer, 1 to 4,096.
        records: how many of the newest records are kept; 16, as the publication states none.
        fading: the weight of a record against that of the next newer one.
        solver: "pgd", accelerated projected gradient; "slsqp", SciPy's as in the publication, for
            up to 16 experts.

    Raises:
        UsageError: a parameter out of range, or loads that are no loads; SciPy is missing.
    """

    def __init__(
        self, experts: int, *, records: int = 16, fading: float = 0.8, solver: str = "pgd"
    ) -> None:
        import loomnet._core as _core

        if type(experts) is not int or not 1 <= experts <= MOST_EXPERTS:
            raise UsageError(
                f"Copilot: experts={quoted(experts)} must be a whole number "
                f"from 1 to {MOST_EXPERTS}"
            )
        if solver not in ("pgd", "slsqp"):
            raise UsageError(f'Copilot: solver "{solver}" is neither pgd nor slsqp')
        if solver == "slsqp" and experts > 16:
            raise UsageError(
                f"Copilot: slsqp has {experts * experts} unknowns for "
                f"{experts} experts; it is for 16 or fewer, use pgd"
            )
        self.experts, self.solver = experts, solver
        self._records: list[tuple[np.ndarray, np.ndarray]] = []
        self._most, self._fading = records, fading
        try:
            self._core = _core.Copilot(experts, records=records, fading=fading)
        except (ValueError, TypeError) as error:
            raise UsageError(f"Copilot: {error}") from None
        self.matrix = np.full((experts, experts), 1 / experts)

    def record(self, before: Any, loads: Any) -> None:
        """Adds a record: the tokens of each expert in one iteration, in the layer before and in
        this one."""
        pair = [np.asarray(each, dtype=float) for each in (before, loads)]
        try:
            self._core.record(pair[0].tolist(), pair[1].tolist())
        except (ValueError, TypeError) as error:
            raise UsageError(f"Copilot: {error}") from None
        self._records.insert(0, (pair[0] / pair[0].sum(), pair[1] / pair[1].sum()))
        del self._records[self._most :]

    def fit(self) -> None:
        """Fits the matrix to the records."""
        if self.solver == "slsqp" and self._records:
            self.matrix = self._slsqp()
        else:
            self._core.fit()
            self.matrix = np.array(self._core.matrix).reshape(self.experts, self.experts)

    def objective(self, matrix: np.ndarray) -> float:
        """The weighted sum of squared differences, which the fit minimises."""
        return float(
            sum(
                self._fading**age * np.sum((y - matrix @ x) ** 2)
                for age, (x, y) in enumerate(self._records)
            )
        )

    def predict(self, before: Any) -> np.ndarray:
        """The predicted shares of the experts, which sum to 1."""
        try:
            # raises for values that are no loads
            self._core.predict(np.asarray(before, dtype=float).tolist())
        except (ValueError, TypeError) as error:
            raise UsageError(f"Copilot: {error}") from None
        loads = np.asarray(before, dtype=float)
        return self.matrix @ (loads / loads.sum())

    def _slsqp(self) -> np.ndarray:
        try:
            from scipy.optimize import minimize
        except ImportError:
            raise UsageError(
                "Copilot: solver slsqp needs SciPy: pip install scipy, or use pgd"
            ) from None
        n = self.experts

        def slope(flat: np.ndarray) -> np.ndarray:
            matrix = flat.reshape(n, n)
            return sum(
                (
                    2 * self._fading**age * np.outer(matrix @ x - y, x)
                    for age, (x, y) in enumerate(self._records)
                ),
                np.zeros((n, n)),
            ).ravel()

        # multiplied with the flat matrix it gives the sum of each column
        columns = np.tile(np.eye(n), n)
        found = minimize(
            lambda flat: self.objective(flat.reshape(n, n)),
            self.matrix.ravel(),
            jac=slope,
            method="SLSQP",
            bounds=[(0, 1)] * (n * n),
            constraints={
                "type": "eq",
                "fun": lambda flat: columns @ flat - 1,
                "jac": lambda flat: columns,
            },
            options={"maxiter": 1000, "ftol": 1e-14},
        )
        if not found.success:
            raise UsageError(f"Copilot: slsqp found no fit: {found.message}; use pgd")
        return found.x.reshape(n, n)
