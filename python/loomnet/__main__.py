"""`python -m loomnet` is the command line."""

from loomnet.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
