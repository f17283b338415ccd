"""A matplotlib Figure that a notebook shows where it is the value of a cell."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

DPI = 150


class Picture(Figure):
    """Shown by Jupyter as PNG."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, bytes], dict[str, dict[str, int]]]:
        """With its width on the page, which is half of its pixels."""
        width = round(self.get_figwidth() * 80)
        return {"image/png": self._repr_png_()}, {"image/png": {"width": width}}
