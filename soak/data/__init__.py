"""``ferry.DataLoader`` over stored samples and over datasets in Python, and its resuming."""
