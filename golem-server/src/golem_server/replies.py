"""What OpenAI's APIs say of an answer besides its text: counts, times, probabilities, ids."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from golem_core.engine import Timings
from golem_core.text import Tokenizer
from golem_server.choice import Choice, Drawn

__all__ = ["FINGERPRINT", "new_id", "obfuscated", "timings", "token_entries", "token_text", "usage"]

FINGERPRINT = f"golem-{version('golem-server')}"

LEAST = -9999.0  # what the APIs say for a probability of 0, which has no logarithm in JSON


def new_id(prefix: str) -> str:
    """An id unlike any other, such as ``chatcmpl-…``."""
    return f"{prefix}-{uuid.uuid4().hex}"


def usage(choices: Sequence[Choice], n: int) -> dict[str, Any]:
    """Tokens of ended `choices`, of which every `n` are answers to one prompt."""
    times = [_timings(choice) for choice in choices]
    prompts = times[::n]
    read = sum(time["prompt_tokens"] for time in prompts)
    drawn = sum(time["generated_tokens"] for time in times)
    return {
        "prompt_tokens": read,
        "completion_tokens": drawn,
        "total_tokens": read + drawn,
        "prompt_tokens_details": {
            "cached_tokens": sum(time["cached_tokens"] for time in prompts),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(choice.reasoning_tokens for choice in choices),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def timings(choices: Sequence[Choice]) -> dict[str, Any]:
    """Where the time went, under llama.cpp's names; of several answers the longest times."""
    times = [_timings(choice) for choice in choices]
    cached = sum(time["cached_tokens"] for time in times)
    read = sum(time["prompt_tokens"] for time in times) - cached
    drawn = sum(time["generated_tokens"] for time in times)
    reading = 1000 * max(time["prompt_seconds"] for time in times)
    drawing = 1000 * max(time["generate_seconds"] for time in times)
    told: dict[str, Any] = {
        "queued_ms": 1000 * max(time["queued_seconds"] for time in times),
        "cache_n": cached,
        "prompt_n": read,
        "prompt_ms": reading,
        "prompt_per_token_ms": reading / read if read else 0.0,
        "prompt_per_second": 1000 * read / reading if reading else 0.0,
        "predicted_n": drawn,
        "predicted_ms": drawing,
        "predicted_per_token_ms": drawing / drawn if drawn else 0.0,
        "predicted_per_second": 1000 * drawn / drawing if drawing else 0.0,
    }
    drafted = sum(time["drafted_tokens"] for time in times)
    if drafted:
        told["draft_n"] = drafted
        told["draft_n_accepted"] = sum(time["accepted_tokens"] for time in times)
    return told


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """A token by itself: U+FFFD for a part of a character."""
    return tokenizer.piece(token).decode("utf-8", "replace")


def token_entries(tokenizer: Tokenizer, drawn: Iterable[Drawn]) -> list[dict[str, Any]]:
    """``logprobs.content`` of a chat: each token with its bytes and the likeliest."""
    return [
        {
            **_entry(tokenizer, one.id, one.logprobs.logprob),
            "top_logprobs": [_entry(tokenizer, token, p) for token, p in one.logprobs.top],
        }
        for one in drawn
    ]


def obfuscated(length: int) -> str:
    """Random letters that bring a piece of `length` characters to a multiple of 16."""
    return secrets.token_urlsafe(16)[: 16 - length % 16]


def logprob(value: float) -> float:
    """A logarithmic probability that JSON can hold."""
    return max(value, LEAST)


def _entry(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    return {
        "token": token_text(tokenizer, token),
        "logprob": logprob(value),
        "bytes": list(tokenizer.piece(token)),
    }


def _timings(choice: Choice) -> Timings:
    assert choice.result is not None  # it has ended
    return choice.result.timings
