"""Chats with a server by OpenAI's own client: what is said, and how it is asked."""

from __future__ import annotations

import openai

PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
SUM = [{"role": "user", "content": "What is 12 + 7?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
STRICT = {"max_retries": 0, "_strict_response_validation": True}
QUICK = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}


def chatting(server):
    """A server with a client of OpenAI's, its loaded model, and `ask` for a completion."""
    server.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)
    create = server.client.chat.completions.create
    create(model="m", messages=SUM, max_tokens=1)  # loads it
    server.model = server.models.loaded()[0].model
    server.ask = lambda **body: create(**{"model": "m", "messages": SUM, **body})
    return server


def streamed(server, **body):
    """The completion that OpenAI's client gathers from a stream."""
    with server.client.chat.completions.stream(
        **{"model": "m", "messages": SUM, "stream_options": {"include_usage": True}, **body}
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()
