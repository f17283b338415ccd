"""The command line."""

from loomnet.cli.entry import main as main
