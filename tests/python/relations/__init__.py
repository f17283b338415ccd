"""Relations between runs: what must hold when a world is run twice, the second time with a change
that does nothing, or whose effect is known. Worlds are drawn at random, each from a token.

    python tests/python/relations                      names of all relations
    python tests/python/relations NAME TOKEN           one world again, with all that broke
    python tests/python/relations NAME TOKEN --less    the same, made smaller while it breaks
    python tests/python/relations NAME… -n 500 -j 2    500 worlds of each, on two processes
"""
