"""What ``tensorferry.optim`` is made of: steps, tensors and the keepers of their state."""
