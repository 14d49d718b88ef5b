"""The numpy backend: the specification of every operation, replayed as it was recorded."""
