"""The network as the user states it: hosts, switches, links, regular fabrics, their picture."""
