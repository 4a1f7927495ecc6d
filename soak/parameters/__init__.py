"""``ferry.ShadowModel`` and ``ferry.optim``: losses and parameters of plain training."""
