"""Engines over a program that would notice any wrong page, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from golem_core.engine import Engine, Request, Result, Stream
from golem_core.sampling import Sampling

from .fake_program import END, HashProgram

GREEDY = Sampling(temperature=0.0)


class Letters:
    """Tokens are single bytes; the last one ends an answer."""

    end_ids = frozenset({END})

    def piece(self, token: int) -> bytes:
        return bytes([token])

    def is_control(self, token: int) -> bool:
        return token == END


def engine(program: HashProgram, context: int = 256, sequences: int = 4) -> Engine:
    return Engine(program, Letters(), context=context, max_sequences=sequences)


def ask(prompt: Sequence[int], most: int | None = None, **rest: object) -> Request:
    rest.setdefault("sampling", GREEDY)
    return Request(prompt_ids=list(prompt), max_tokens=most, **rest)


def nothing_leaked(made: Engine) -> None:
    memory = made._memory
    assert all((table == -1).all() for table in memory.tables)
    pools = [*memory.pools]
    if memory.states is not None:
        assert (memory.states.read == -1).all()
        pools.append(memory.states.pool)
    for pool in pools:
        assert pool.free + pool.idle == pool.pages
    memory.tree.clear()
    assert memory.tree.nodes == 0
    for pool in pools:
        assert (pool.free, pool.idle) == (pool.pages, 0)


def together(
    program: HashProgram,
    requests: Sequence[Request],
    sequences: int = 4,
    kind: type[Engine] = Engine,
) -> tuple[list[Result], Engine]:
    """Runs `requests` submitted before the first pass ends."""
    with kind(program, Letters(), context=256, max_sequences=sequences) as made:
        streams: list[Stream] = []
        program.before = lambda number: (
            streams.extend(made.submit(r) for r in requests[1:]) if number == 0 else None
        )
        first_result = made.submit(requests[0]).result()
        return [first_result, *(s.result() for s in streams)], made


@st.composite
def prompts(draw: Callable) -> list[int]:
    """Prompts that often begin alike."""
    shared = draw(st.sampled_from([0, 5, 32, 40, 64, 96]))
    own = draw(st.integers(0 if shared else 1, 60))
    salt = draw(st.integers(1, 3))
    return [(3 * i) % 100 for i in range(shared)] + [(salt * i + salt) % 100 for i in range(own)]


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 40),  # at this pass
        prompts(),
        st.integers(1, 70),  # the most tokens
        st.none() | st.integers(0, 60),  # cancelled at this pass
    ),
    min_size=1,
    max_size=9,
)
