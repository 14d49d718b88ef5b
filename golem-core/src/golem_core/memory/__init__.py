"""What a conversation keeps: pages of keys and values, shared where two begin alike."""

from golem_core.memory.available import available_memory
from golem_core.memory.conversation import (
    Hold,
    Keys,
    Memory,
    least_pages,
    pages_for,
    token_keys,
)
from golem_core.memory.pages import PagePool
from golem_core.memory.prefix import Node, PrefixTree

__all__ = [
    "Hold",
    "Keys",
    "Memory",
    "Node",
    "PagePool",
    "PrefixTree",
    "available_memory",
    "least_pages",
    "pages_for",
    "token_keys",
]
