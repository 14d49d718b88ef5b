"""What a conversation keeps: pages of keys and values and slots of state, shared beginnings."""

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
from golem_core.memory.recurrent import States

__all__ = [
    "Hold",
    "Keys",
    "Memory",
    "Node",
    "PagePool",
    "PrefixTree",
    "States",
    "available_memory",
    "least_pages",
    "pages_for",
    "token_keys",
]
