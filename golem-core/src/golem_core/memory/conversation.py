"""What each conversation keeps: its rows of the page tables, filled from one pool.

A `Hold` is a conversation's place: for each page group a row of the group's table, where entry j
is the page of positions 32 j to 32 j + 31, -1 when there is none (not yet, or no longer: a window
group gives back what its window has left). The tables are what `Batch.pages` takes, so a pass is
built without copying them. Of a recurrent program a conversation also has a slot of state, and can
go on only from where a state is: see `recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from golem_core.errors import NoMemory
from golem_core.graph.program import PAGE, PageGroup
from golem_core.memory.pages import PagePool
from golem_core.memory.prefix import ABSENT, Node, PrefixTree
from golem_core.memory.recurrent import States

# The key of page j in the prefix tree, under the keys of the pages before it.
Keys = Callable[[int], bytes]


def token_keys(tokens: np.ndarray, extra: dict[int, bytes] | None = None) -> Keys:
    """Keys from `tokens` (int32): page j's are its 32 ids, with `extra[j]` where there is one.

    `extra` is for what ids do not say, such as the hash of a picture that stands at their place.
    """

    def key(page: int) -> bytes:
        ids = tokens[page * PAGE : (page + 1) * PAGE].tobytes()
        return ids if extra is None else ids + extra.get(page, b"")

    return key


def pages_for(positions: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // PAGE)


def least_pages(window: int | None, context: int) -> int:
    """The fewest pages of a group with which one sequence of `context` positions can be run."""
    whole = pages_for(context)
    return whole if window is None else min(whole, pages_for(window - 1) + 1)


class Hold:
    """What one conversation holds. Made by `Memory.open`, given back by `Memory.close`."""

    __slots__ = (
        "end",
        "first",
        "kept",
        "length",
        "nodes",
        "rolling",
        "row",
        "state",
        "state_end",
        "wanted",
    )

    def __init__(self, row: int, groups: int) -> None:
        self.row = row  # of the page tables
        self.length = 0  # positions whose keys and values are there
        self.end = 0  # pages held, in every group alike, up to this one
        self.first = [0] * groups  # the first page still held, in each group
        self.nodes: list[Node] = []  # of the prefix tree: the full pages, from the first
        self.state = ABSENT  # the slot that it goes on from
        self.state_end = 0  # positions that this state is after
        self.kept: list[tuple[int, int]] = []  # of a pass: columns, and the slots of their states
        self.wanted: set[int] = set()  # counts of pages after which the state is to be remembered
        self.rolling: Node | None = None  # remembers the end of the last page passed


class Memory:
    """The pool of pages of one program, its page tables and its prefix tree.

    groups   the program's page groups
    context  the most positions of a sequence
    rows     the most sequences that hold pages at a time
    slots    of recurrent state; None: the program has none. No more sequences run at a time

    Raises `NoMemory` when one sequence of `context` positions does not fit.
    """

    def __init__(
        self, groups: Sequence[PageGroup], context: int, rows: int, slots: int | None = None
    ) -> None:
        for group in groups:
            least = least_pages(group.window, context)
            if group.pages < least:
                raise NoMemory(
                    f"a sequence of {context} tokens needs {least} pages of {PAGE} positions and "
                    f"the pool has {group.pages}; ask for a shorter context"
                )
        self.windows = tuple(group.window for group in groups)
        self.pools = tuple(PagePool(group.pages) for group in groups)
        single = [window is not None for window in self.windows]
        self.states: States | None = None
        if slots is None:
            self.tree = PrefixTree(self.pools, single)
        else:
            if slots < 1:
                raise NoMemory("a sequence needs a slot for its recurrent state and there is none")
            pool = PagePool(slots)
            self.tree = PrefixTree([*self.pools, pool], [*single, True])
            self.states = States(pool, self.tree, len(groups), rows)
        self.tables = tuple(
            np.full((rows, pages_for(context)), ABSENT, dtype=np.int32) for _ in groups
        )
        self._width = pages_for(context)
        self._rows = list(range(rows - 1, -1, -1))

    @property
    def has_row(self) -> bool:
        """Whether another conversation can be opened."""
        return bool(self._rows)

    def open(self) -> Hold:
        """A place for a conversation, holding nothing yet. `IndexError` if there is none."""
        return Hold(self._rows.pop(), len(self.pools))

    def extend(self, hold: Hold, keys: Keys, tokens: int) -> int:
        """Takes over from the tree what continues `hold`, and gives how many positions that is.

        `tokens` is the length of the text that `keys` describes; its last token is left to be
        read, because logits come from reading. `hold` must stand at the end of a page, or nothing
        is taken. A window group must have every page that the next position will read, and of a
        recurrent program the state must be remembered. Where there are pages without a state, and
        at the last full page, `hold` wants to remember it.
        """
        start = len(hold.nodes)
        if hold.length != start * PAGE or hold.end != start:
            return 0
        found: list[Node] = []
        node = hold.nodes[-1] if hold.nodes else self.tree.root
        usable = known = 0
        # For each window group the first page of the unbroken run that ends here.
        since = list(hold.first)
        for page in range(start, (tokens - 1) // PAGE):
            child = node.children.get(keys(page))
            if child is None:
                break
            node = child
            found.append(node)
            whole = True
            for group, window in enumerate(self.windows):
                if node.pages[group] == ABSENT:
                    since[group] = page + 1
                whole = whole and since[group] <= _first_needed(window, (page + 1) * PAGE)
            if whole:
                known = len(found)
                if self.states is None or self.states.is_kept(node):
                    usable = known
        end = start + usable
        if self.states is not None and not hold.wanted:
            hold.wanted = {p for p in (start + known, (tokens - 1) // PAGE) if p > end}
        if not usable:
            return 0
        for page, node in enumerate(found[:usable], start):
            self.tree.enter(node)
            hold.nodes.append(node)
            for group, window in enumerate(self.windows):
                if page >= _first_needed(window, end * PAGE):
                    self.pools[group].hold(node.pages[group])
                    self.tables[group][hold.row, page] = node.pages[group]
        hold.end = end
        hold.length = end * PAGE
        if self.states is not None:
            self.states.take_over(hold, hold.nodes[-1])
        self._leave_behind(hold, start)
        return usable * PAGE

    def room(self, hold: Hold) -> int:
        """How many further positions could be reserved for `hold` now."""
        pages = min((pool.available for pool in self.pools), default=self._width)
        return (hold.end + pages) * PAGE - hold.length

    def could_read(self, hold: Hold, tokens: int, step: int, spare: int) -> bool:
        """Whether the pool has room now to read up to `tokens` in steps of `step` positions.

        `spare` pages of each group are left to others.
        """
        for group, pool in enumerate(self.pools):
            need = pages_for(tokens)
            window = self.windows[group]
            if window is not None:
                need = min(need, hold.end + pages_for(window + step))
            if pool.available < need - hold.end + spare:
                return False
        return True

    def reserve(self, hold: Hold, positions: int) -> None:
        """Gives `hold` the pages for its next `positions`, which `room` must allow."""
        end = pages_for(hold.length + positions)
        if end <= hold.end:
            return
        for group, pool in enumerate(self.pools):
            row = self.tables[group][hold.row]
            for page in range(hold.end, end):
                if not pool.free and not self.tree.evict(group):
                    raise AssertionError("reserved more than there is room for")
                row[page] = pool.take()
        hold.end = end

    def advance(self, hold: Hold, positions: int, keys: Keys) -> None:
        """The next `positions` of `hold` were computed, and without a NaN.

        The pages that are full now are shared through the tree; what lies behind every window
        is given back.
        """
        hold.length += positions
        full = hold.length // PAGE
        while len(hold.nodes) < full:
            self._share(hold, len(hold.nodes), keys)
        if self.states is not None:
            self.states.settle(hold, positions)
        self._leave_behind(hold, hold.end)

    def close(self, hold: Hold) -> None:
        """Gives everything back. What the tree knows of it stays until its room is needed."""
        if self.states is not None:
            self.states.close(hold)
        for group in range(len(self.pools)):
            self._let_go(hold, group, hold.first[group], hold.end)
        for node in reversed(hold.nodes):
            self.tree.leave(node)
        hold.nodes = []
        self._rows.append(hold.row)
        hold.row = ABSENT

    def _share(self, hold: Hold, page: int, keys: Keys) -> None:
        parent = hold.nodes[-1] if hold.nodes else self.tree.root
        key = keys(page)
        node = parent.children.get(key)
        if node is None:
            node = self.tree.add(parent, key)
        self.tree.enter(node)
        hold.nodes.append(node)
        for group, pool in enumerate(self.pools):
            mine = int(self.tables[group][hold.row, page])
            theirs = node.pages[group]
            if theirs == ABSENT:
                self.tree.remember(node, group, mine)
            elif theirs != mine:
                # Two conversations read the same page at once. Both hold the same bits, because
                # a result does not depend on what else was in the pass: one of them is enough.
                pool.hold(theirs)
                pool.drop(mine)
                self.tables[group][hold.row, page] = theirs

    def _leave_behind(self, hold: Hold, end: int) -> None:
        """Lets go of the pages below `end` that no position from `hold.length` on will read."""
        for group, window in enumerate(self.windows):
            if window is None:
                continue
            first = _first_needed(window, hold.length)
            if first > hold.first[group]:
                self._let_go(hold, group, hold.first[group], min(first, end))
                hold.first[group] = first

    def _let_go(self, hold: Hold, group: int, first: int, end: int) -> None:
        if first >= end:
            return
        row = self.tables[group][hold.row]
        for page in range(first, end):
            held = int(row[page])
            if page < len(hold.nodes) and hold.nodes[page].pages[group] == held:
                self.tree.drop(hold.nodes[page], group)
            else:
                self.pools[group].drop(held)
        row[first:end] = ABSENT


def _first_needed(window: int | None, position: int) -> int:
    """The first page that `position` and those after it read."""
    return 0 if window is None else max(0, (position - window + 1) // PAGE)
