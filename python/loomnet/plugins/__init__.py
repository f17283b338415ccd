"""Plug-ins in Python: congestion controls, controllers and priorities, registered by name."""
