"""``save``, ``save_async`` and ``load``, by one process and by several ranks."""
