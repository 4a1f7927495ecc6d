"""``ferry.ActivationOffload``: gradients bit for bit as without it."""
