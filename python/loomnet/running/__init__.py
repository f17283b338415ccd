"""One run: the request, the engine's network, the virtual clock, what is recorded."""
