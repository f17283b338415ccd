"""What was measured: raw series of a run, and the figures that are computed from them."""
