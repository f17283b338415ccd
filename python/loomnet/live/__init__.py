"""What a live run needs of the machine: doctor, ownership, Open vSwitch, Mininet hosts, ranks.

Each module stands alone; only :mod:`loomnet.live.nodes` needs Mininet, and only when a fabric is
built. Nothing here is imported by a run on the virtual clock.
"""
