"""A fabric as plain numbers, addresses and routes, with nothing left to decide."""
