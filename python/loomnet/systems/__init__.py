"""One module per system, with all that the rest of the package must know of it; see registry.py."""
