"""One group's pages: who holds each of them, and which can be had.

A page is a number below `pages`; what it means (so many positions of keys and values of some
layers) is the program's business. Each holder counts once: a conversation that reads or writes
the page, and the prefix tree when it remembers the page. A page that only the tree holds is
*idle*: nobody needs it now, and the tree gives it up when the free ones run out. Slots of recurrent
state are counted alike (`recurrent.py`).
"""

from __future__ import annotations


class PagePool:
    """The pages of one group: a stack of free ones and a count of holders for each."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.idle = 0  # held by the prefix tree alone
        # A stack, lowest on top: the page given back last is taken first, so memory that was
        # never written stays untouched while it is not needed.
        self._free = list(range(pages - 1, -1, -1))
        self._holders = [0] * pages
        self._kept = bytearray(pages)  # 1: the tree is one of the holders

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    @property
    def available(self) -> int:
        """Pages that can be had: the free ones, and the idle ones once they are evicted."""
        return len(self._free) + self.idle

    def holders(self, page: int) -> int:
        """How many hold `page`, the tree included."""
        return self._holders[page]

    def is_kept(self, page: int) -> bool:
        """Whether the tree is one of those that hold `page`."""
        return self._kept[page] == 1

    def is_idle(self, page: int) -> bool:
        """Whether the tree alone holds `page`."""
        return self._holders[page] == 1 and self._kept[page] == 1

    def take(self) -> int:
        """A free page, with one holder. `IndexError` if there is none: evict first."""
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more conversation holds `page`."""
        if self.is_idle(page):
            self.idle -= 1
        self._holders[page] += 1

    def drop(self, page: int) -> bool:
        """A conversation lets go of `page`. Gives whether the page is idle from now on."""
        self._holders[page] -= 1
        if self._holders[page] == 0:
            self._free.append(page)
        elif self.is_idle(page):
            self.idle += 1
            return True
        return False

    def keep(self, page: int) -> None:
        """The tree becomes a holder of `page`, which a conversation holds."""
        self._kept[page] = 1
        self._holders[page] += 1

    def forget(self, page: int) -> None:
        """The tree lets go of `page`, which is free from now on if it was idle."""
        if self.is_idle(page):
            self.idle -= 1
            self._free.append(page)
        self._kept[page] = 0
        self._holders[page] -= 1
