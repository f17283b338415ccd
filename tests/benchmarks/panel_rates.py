"""What one circuit carries between two hosts' kernels, by a panel's placement, all within one run:
bulk TCP, and UDP datagrams of 64 bytes. Needs root:
.venv/bin/python tests/benchmarks/panel_rates.py"""

import json
import subprocess

import loomnet as ln

SECONDS = 2


def measured(lab: ln.OpenLab, *words: str) -> dict[str, float]:
    server = lab.popen("h1", ["iperf3", "-s", "-1", "-p", "7010"], stdout=subprocess.DEVNULL)
    asked = f"sleep 0.3; iperf3 -J -t {SECONDS} -p 7010 -c {lab.address('h1')} {' '.join(words)}"
    answer = json.loads(lab.exec("h0", asked).stdout)
    server.wait(20)
    return answer["end"]


def main() -> None:
    rates: dict[str, tuple[float, float]] = {}
    for placement in ("engine", "xdp", "tc"):
        fabric = ln.Fabric("pair")
        fabric.add_panel("ocs0", placement=placement)
        for host in range(2):
            fabric.add_host()
            fabric.add_link(f"h{host}", "ocs0", rate="10 Gb/s", delay="10 us")
        fabric.panel("ocs0").circuits([("h0", "h1")])
        with ln.lab(fabric, clock="live") as lab:
            bulk = measured(lab)["sum_received"]["bits_per_second"] / 1e9
            small = measured(lab, "-u", "-b", "0", "-l", "64")["sum"]
            arrived = (small["packets"] - small["lost_packets"]) / small["seconds"] / 1e3
        rates[placement] = bulk, arrived
    for placement, (bulk, arrived) in rates.items():
        ratios = f"{bulk / rates['engine'][0]:.1f} and {arrived / rates['engine'][1]:.1f}"
        print(
            f"{placement:6}  TCP {bulk:5.2f} Gb/s  UDP {arrived:4.0f} k packets/s"
            f"  ({ratios} times the engine's)"
        )


if __name__ == "__main__":
    main()
