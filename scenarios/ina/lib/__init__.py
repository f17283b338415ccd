"""What scenarios of aggregation share."""

from .mix import JOBS, SETTINGS, SLOT_BYTES, VALUES, WIRE_BYTES, Mix, picoseconds

__all__ = ["JOBS", "SETTINGS", "SLOT_BYTES", "VALUES", "WIRE_BYTES", "Mix", "picoseconds"]
