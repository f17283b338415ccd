"""Fabrics that several tests build."""

import loomnet as ln


def main_job(**changes):
    """Of the main job's shape: four planes of two leaves and two spines, four hosts at 40 Mb/s
    per plane. `changes` are arguments of two_tier."""
    shape = {
        "planes": 4,
        "leaves": 2,
        "spines": 2,
        "hosts_per_leaf": 2,
        "rate": "40 Mb/s",
        "uplink_rate": "80 Mb/s",
        "delay": "0.5 ms",
    }
    return ln.clos.two_tier(**{**shape, **changes})
