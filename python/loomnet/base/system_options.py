"""Options that systems add to jobs, as type checkers and editors read them. A run reads JOB_OPTIONS
of each system."""

from __future__ import annotations

from typing import TypedDict


class SystemOptions(TypedDict, total=False):
    server: str | None  # of in-network aggregation
