"""Switch programs that a user writes as one C file: found, compiled, made known to the engine."""
