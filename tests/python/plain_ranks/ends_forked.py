"""ends.py with PyTorch, by ranks that are forked from one process which has imported it."""

import torch._dynamo  # noqa: F401, I001

import ends  # noqa: F401  # runs it
