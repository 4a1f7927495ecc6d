"""``ferry.Engine``: raw reads and writes, beside the same ones in an array."""
