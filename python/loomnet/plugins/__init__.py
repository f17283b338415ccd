"""Plug-ins in Python: congestion controls, controllers, priorities and assigners of
circuits, registered by name."""
