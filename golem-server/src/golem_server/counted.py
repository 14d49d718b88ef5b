"""How many tokens the prompt of a request has, without drawing an answer."""

from __future__ import annotations

from golem_server.ask import Ask
from golem_server.errors import ApiError
from golem_server.models import Served

__all__ = ["prompt_tokens"]


async def prompt_tokens(served: Served, ask: Ask) -> int:
    """The tokens, also where there are more than the context has room for."""
    try:
        asked = await served.in_thread(ask.prepare, served)
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise
        return int(error.extra["n_prompt_tokens"])
    return len(asked[0].prompt_ids)
