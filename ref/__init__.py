"""What wrote the recordings under tests/recordings, and how to write them again (see README.md)."""
