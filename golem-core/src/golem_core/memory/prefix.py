"""The tree of what the pages hold, by which conversations share a beginning.

A node stands for one full page of tokens after all those of its ancestors, and names the page of
each group that holds their keys and values. A window group's page may be absent: it was left
behind and its room was needed. Of a recurrent model a further group has the slots of state: a node
names the one that holds the state at the page's end, where that was kept. A node that a
conversation stands on is in use, and so are its ancestors. What is not in use is evicted when room
is needed, the least recently used first, a leaf before its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from golem_core.memory.pages import PagePool

ABSENT = -1


class Node:
    """One page of tokens in its place after its ancestors."""

    __slots__ = ("children", "key", "left", "pages", "parent", "roller", "stamp", "users")

    def __init__(self, parent: Node | None, key: bytes, groups: int) -> None:
        self.parent = parent
        self.key = key
        self.children: dict[bytes, Node] = {}
        self.pages = [ABSENT] * groups
        self.users = 0  # conversations that stand on it
        self.stamp = 0  # when the last of them left
        self.left = [0] * groups  # when each page became idle
        # The conversation that will take its state back once it has passed a further page.
        self.roller: object = None

    @property
    def is_unused_leaf(self) -> bool:
        """Whether the node may be evicted now."""
        return self.users == 0 and not self.children and self.parent is not None

    @property
    def is_empty(self) -> bool:
        """Whether it names no page of any group."""
        return all(page == ABSENT for page in self.pages)


class PrefixTree:
    """The nodes under one root, and two kinds of queue of what may be evicted.

    `single` says of each group whether its pages are given up one by one, as those of windows and
    the slots of state are; the others' go with their node. The queues are heaps with stale
    entries, which are skipped when they come up and swept when they are the most: eviction costs
    O(log n).
    """

    def __init__(self, pools: Sequence[PagePool], single: Sequence[bool]) -> None:
        self.root = Node(None, b"", len(pools))
        self.nodes = 0
        self._pools = tuple(pools)
        self._single = tuple(single)
        self._clock = 0
        self._leaves: list[tuple[int, int, Node]] = []
        self._idle: list[list[tuple[int, int, Node]]] = [[] for _ in pools]  # single groups

    def enter(self, node: Node) -> None:
        """A conversation stands on `node`."""
        node.users += 1

    def leave(self, node: Node) -> None:
        """A conversation that stood on `node` does not any more; children are left first."""
        node.users -= 1
        if node.users == 0:
            node.stamp = self._tick()
            if node.is_unused_leaf:
                self._offer(node)

    def add(self, parent: Node, key: bytes) -> Node:
        """A new child of `parent` without pages."""
        node = Node(parent, key, len(self._pools))
        parent.children[key] = node
        self.nodes += 1
        return node

    def remember(self, node: Node, group: int, page: int) -> None:
        """`node` names `page`, which a conversation holds, for `group`, where it had none."""
        node.pages[group] = page
        self._pools[group].keep(page)

    def drop(self, node: Node, group: int) -> None:
        """A conversation lets go of the page of `group` that `node` names."""
        if self._pools[group].drop(node.pages[group]) and self._single[group]:
            node.left[group] = self._tick()
            queue = self._idle[group]
            heappush(queue, (node.left[group], id(node), node))
            if len(queue) > 4 * self.nodes + 64:
                queue[:] = [entry for entry in queue if self._idle_since(entry, group)]
                heapify(queue)

    def forget(self, node: Node, group: int) -> None:
        """`node`, which is in use, does not name its page of `group` any more."""
        self._pools[group].forget(node.pages[group])
        node.pages[group] = ABSENT

    def evict(self, group: int) -> bool:
        """Makes one idle page of `group` free; False if there is none."""
        if self._single[group]:
            return self._evict_page(group)
        while self._leaves:
            stamp, _, node = heappop(self._leaves)
            if node.is_unused_leaf and node.stamp == stamp:
                had = node.pages[group] != ABSENT
                self._remove(node)
                if had:
                    return True
        return False

    def clear(self) -> None:
        """Evicts everything that is not in use."""
        while self._leaves:
            stamp, _, node = heappop(self._leaves)
            if node.is_unused_leaf and node.stamp == stamp:
                self._remove(node)

    def _evict_page(self, group: int) -> bool:
        queue = self._idle[group]
        while queue:
            entry = heappop(queue)
            if self._idle_since(entry, group):
                node = entry[2]
                self.forget(node, group)
                if node.is_unused_leaf and node.is_empty:
                    self._remove(node)
                return True
        return False

    def _idle_since(self, entry: tuple[int, int, Node], group: int) -> bool:
        stamp, _, node = entry
        page = node.pages[group]
        return page != ABSENT and node.left[group] == stamp and self._pools[group].is_idle(page)

    def _remove(self, node: Node) -> None:
        """Takes the unused leaf `node` out, and what of its ancestors is of no use without it."""
        while True:
            for group, page in enumerate(node.pages):
                if page != ABSENT:
                    self.forget(node, group)
            parent = node.parent
            assert parent is not None  # only leaves below the root are removed
            node.parent = None
            del parent.children[node.key]
            self.nodes -= 1
            if not parent.is_unused_leaf:
                return
            if not parent.is_empty:
                self._offer(parent)
                return
            node = parent

    def _offer(self, node: Node) -> None:
        """`node` is an unused leaf from now on; one that names nothing is of no use."""
        if node.is_empty:
            self._remove(node)
            return
        heappush(self._leaves, (node.stamp, id(node), node))
        if len(self._leaves) > 4 * self.nodes + 64:
            self._leaves = [e for e in self._leaves if e[2].is_unused_leaf and e[2].stamp == e[0]]
            heapify(self._leaves)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
