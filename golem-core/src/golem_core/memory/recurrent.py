"""Slots of recurrent state: which one each conversation goes on from, which are remembered.

A slot has every state of the program as it is after one position of one text. A pass reads a
conversation's slot and writes the state after its last column: into the same slot where the
conversation alone holds it, else into a fresh one, for what the prefix tree remembers or another
conversation goes on from must not change. So no state is ever copied: a snapshot is a slot that
the tree holds on to, in the node of the page at whose end the state was.

Remembered are the ends of pages that are worth returning to: those that `Hold.wanted` names while
a prompt is read, and the last one passed, which gives way to the next (it *rolls*) and stays when
the conversation ends, for its next turn. A further column's state is kept where a slot is to spare;
the idle snapshot that was used least recently is given up for it.

Guesses take no slots: the program remembers the columns behind one whose state is kept, and the
conversation goes on from the slot and as many of them as were right.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.program import PAGE
from golem_core.memory.pages import PagePool
from golem_core.memory.prefix import ABSENT, Node, PrefixTree

if TYPE_CHECKING:
    from golem_core.memory.conversation import Hold


class States:
    """The slots of one program.

    pool   who holds which slot
    tree   remembers slots as its group `group`
    rows   the most conversations at a time

    `read` int32 [rows] is what `Batch.states` takes: the slot of each row's conversation, or -1;
    `replays` int32 [rows] what `Batch.replays` takes.
    `spare` is how many further columns of the next pass may have their states kept.
    """

    def __init__(self, pool: PagePool, tree: PrefixTree, group: int, rows: int) -> None:
        self.pool = pool
        self.read = np.full(rows, ABSENT, dtype=np.int32)
        self.replays = np.zeros(rows, dtype=np.int32)
        self._tree = tree
        self._group = group
        self.spare = 0

    def is_kept(self, node: Node) -> bool:
        """Whether the state at the end of the page of `node` is remembered."""
        return node.pages[self._group] != ABSENT

    def take_over(self, hold: Hold, node: Node) -> None:
        """`hold` goes on from the state at `node`, up to which it has been extended."""
        self._let_go(hold)
        node.roller = None  # it proved worth returning to
        self.pool.hold(node.pages[self._group])
        self._now(hold, node.pages[self._group], hold.length)

    def budget(self, holds: Iterable[Hold]) -> None:
        """Before a pass of some of `holds`: what none of them needs is to spare."""
        self.spare = self.pool.available - sum(not self._is_alone(hold) for hold in holds)

    def is_ready(self, hold: Hold) -> bool:
        """Whether the state after a pass of `hold` could be written somewhere."""
        return self._is_alone(hold) or self.pool.available > 0 or self._is_snapshot(hold)

    def keep(self, hold: Hold, columns: int) -> None:
        """Keeps the state after the last of so many columns, and those that are wanted.

        `hold` must be ready.
        """
        hold.kept = [(columns - 1, hold.state if self._is_alone(hold) else self._fresh(hold))]
        for page in hold.wanted:
            offset = page * PAGE - hold.length - 1
            if 0 <= offset < columns - 1 and (slot := self._extra()) is not None:
                hold.kept.append((offset, slot))

    def guess(self, hold: Hold, guesses: int) -> None:
        """So many guesses stand behind the one column of `hold`, whose state is kept.

        Where they pass the end of a page, the state there is worth a slot.
        """
        offset = PAGE - 1 - hold.length % PAGE
        if 0 < offset <= guesses and (slot := self._extra()) is not None:
            hold.kept.append((offset, slot))

    def settle(self, hold: Hold, columns: int) -> None:
        """The first `columns` of a pass are right; the state of the last of them is the state now.

        The page tables of `hold` have been advanced, so its nodes name what it has passed.
        """
        start, before = hold.length - columns, hold.state
        last, now = max(kept for kept in hold.kept if kept[0] < columns)
        if before != now:
            self._let_go(hold)
        self._now(hold, now, start + last + 1)
        for offset, slot in hold.kept:
            page, inside = divmod(start + offset + 1, PAGE)
            node = hold.nodes[page - 1] if offset < columns and not inside else None
            if node is not None:
                self._remember(hold, node, page, slot)
            if slot in (before, now):
                continue
            if node is not None and node.pages[self._group] == slot:
                self._tree.drop(node, self._group)
            else:
                self.pool.drop(slot)
        hold.kept = []

    def close(self, hold: Hold) -> None:
        """Gives back what `hold` has; its last snapshot stays for who goes on from there."""
        for _, slot in hold.kept:
            if slot != hold.state:
                self.pool.drop(slot)
        hold.kept = []
        self._let_go(hold)
        if hold.rolling is not None and hold.rolling.roller is hold:
            hold.rolling.roller = None
        hold.rolling = None

    def _remember(self, hold: Hold, node: Node, page: int, slot: int) -> None:
        rolls = page not in hold.wanted
        if self.is_kept(node):
            node.roller = None  # another text's, which this one needs as well
            rolls = False
        else:
            self._tree.remember(node, self._group, slot)
            node.roller = hold if rolls else None
        hold.wanted.discard(page)
        last = hold.rolling
        if last is not None and last.roller is hold and self.is_kept(last):
            self._tree.forget(last, self._group)
            last.roller = None
        hold.rolling = node if rolls else None

    def _is_alone(self, hold: Hold) -> bool:
        return hold.state != ABSENT and self.pool.holders(hold.state) == 1

    def _is_snapshot(self, hold: Hold) -> bool:
        """Whether nobody but the tree and `hold` holds the slot of `hold`."""
        slot = hold.state
        return slot != ABSENT and self.pool.holders(slot) == 2 and self.pool.is_kept(slot)

    def _fresh(self, hold: Hold) -> int:
        if self.pool.free or self._tree.evict(self._group):
            return self.pool.take()
        # Every slot is some conversation's: this one's snapshot is given up, and written over.
        if not self._is_snapshot(hold):
            raise AssertionError("no slot of state is left")
        self._tree.forget(hold.nodes[-1], self._group)
        return hold.state

    def _extra(self) -> int | None:
        if self.spare <= 0 or not (self.pool.free or self._tree.evict(self._group)):
            return None
        self.spare -= 1
        return self.pool.take()

    def _now(self, hold: Hold, slot: int, end: int) -> None:
        hold.state, hold.state_end = slot, end
        self.read[hold.row] = slot
        self.replays[hold.row] = hold.length - end

    def _let_go(self, hold: Hold) -> None:
        """`hold` holds the slot that it went on from no more."""
        if hold.state == ABSENT:
            return
        page, inside = divmod(hold.state_end, PAGE)
        node = None if inside else hold.nodes[page - 1]
        if node is not None and node.pages[self._group] == hold.state:
            self._tree.drop(node, self._group)
        else:
            self.pool.drop(hold.state)
        hold.state = ABSENT
        self.read[hold.row] = ABSENT
        self.replays[hold.row] = 0
