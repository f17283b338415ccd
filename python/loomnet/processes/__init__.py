"""Processes that a run starts: ranks, the keepers that end them, the journal of what a run owns."""
