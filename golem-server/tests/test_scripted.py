"""What a stream does with an answer that is known: characters, stop strings, calls, failures."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from types import SimpleNamespace

import openai
import pytest

from golem_server import room

from .scripted import Script

FAMILY = "👨‍👩‍👧‍👦"
WIDE = f"깰 {FAMILY} 𓀀𓀁"
USER = [{"role": "user", "content": "Go on."}]
STRICT = {"max_retries": 0, "_strict_response_validation": True}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
    for name in ("weather", "time")
]
CALL = '<tool_call>\n{{"name": "{}", "arguments": {{"city": "{}"}}}}\n</tool_call>'


@pytest.fixture(scope="module")
def script(trained_model, serve_in_thread):
    """A server of a model that says what it is told to; `client` is OpenAI's, without retries."""
    script = Script(trained_model)
    patch = pytest.MonkeyPatch()
    patch.setattr(room, "golem_core", SimpleNamespace(load=lambda *_, **__: script.model))
    with serve_in_thread(f"scripted={trained_model}") as server:
        script.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)
        script.server = server
        yield script
    patch.undo()


@pytest.fixture(autouse=True)
def _quick(request):
    if "script" in request.fixturenames:
        request.getfixturevalue("script").program.delay = 0.0


def ask(script, text, **options):
    """The whole answer and the pieces of the streamed one; both are asked for `text`."""
    messages = options.pop("messages", USER)
    told = {"tools": options["tools"]} if options.get("tools") else {}
    after = len(script.model.chat_ids(messages, enable_thinking=False, **told))
    ids = text if isinstance(text, list) else script.tokenizer.encode(text, special=True)
    script.draws(ids, after)
    request = {
        "model": "scripted",
        "messages": messages,
        "temperature": 0,
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        **options,
    }
    whole = script.client.chat.completions.create(**request).choices[0]
    chunks = list(script.client.chat.completions.create(stream=True, **request))
    return whole, [chunk.choices[0] for chunk in chunks if chunk.choices]


def content(pieces):
    return "".join(piece.delta.content or "" for piece in pieces)


# Characters that several tokens make


def test_characters_are_never_cut(script):
    ids = script.tokenizer.encode(WIDE)
    assert len(ids) > len(WIDE)
    whole, pieces = ask(script, WIDE, logprobs=True)
    assert whole.message.content == content(pieces) == WIDE
    assert all("\ufffd" not in (piece.delta.content or "") for piece in pieces)
    entries = [e for piece in pieces if piece.logprobs for e in piece.logprobs.content]
    assert entries == whole.logprobs.content
    assert len(entries) == len(ids)
    assert bytes(byte for entry in entries for byte in entry.bytes) == WIDE.encode()


@pytest.mark.parametrize("most", range(1, 12))
def test_a_character_that_is_cut_off_ends_the_same_way(script, most):
    whole, pieces = ask(script, WIDE, max_tokens=most, logprobs=True)
    assert whole.finish_reason == pieces[-1].finish_reason == "length"
    ids = script.tokenizer.encode(WIDE)[:most]
    raw = b"".join(map(script.tokenizer.piece, ids))
    assert whole.message.content == content(pieces) == script.tokenizer.decode(ids)
    assert bytes(b for entry in whole.logprobs.content for b in entry.bytes) == raw


# Stop strings


@pytest.mark.parametrize(
    ("text", "stop", "expected", "reason"),
    [
        ("The quick brown fox jumps", "own fox", "The quick br", "stop"),
        ("The quick brown fox jumps", ["own fox", "zebra"], "The quick br", "stop"),
        ("The quick brown fox jumps", ["fox jumps!"], "The quick brown fox jumps", "stop"),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "DEFGHIJ", "ABC", "stop"),
        ("abxcd", "x", "ab", "stop"),
        (WIDE, FAMILY[1:3], f"깰 {FAMILY[0]}", "stop"),
        (WIDE, "\U00013001", f"깰 {FAMILY} \U00013000", "stop"),
    ],
)
def test_a_stop_string_is_never_told(script, text, stop, expected, reason):
    whole, pieces = ask(script, text, stop=stop, logprobs=True)
    assert whole.message.content == content(pieces) == expected
    assert whole.finish_reason == pieces[-1].finish_reason == reason
    # The tokens that are told make the text, the last of them with what a stop string took of it.
    told = b"".join(bytes(entry.bytes) for entry in whole.logprobs.content)
    assert told.startswith(expected.encode())
    last = whole.logprobs.content[-1].bytes
    assert len(told) - len(last) < len(expected.encode())


@pytest.mark.parametrize("stop", ["", ["a", ""], ["a", "b", "c", "d", "e"], 5, [1], {"a": 1}])
def test_a_stop_string_that_cannot_be(script, stop):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(script, "x", stop=stop)
    assert caught.value.param == "stop"


# Calls of tools


def accumulated(script, text, **options):
    after = len(script.model.chat_ids(USER, enable_thinking=False, tools=options["tools"]))
    script.says(text, after)
    with script.client.chat.completions.stream(
        model="scripted",
        messages=USER,
        temperature=0,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
        **options,
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0]


def test_parallel_calls_stay_apart(script):
    text = f"Both:\n{CALL.format('weather', 'Oslo')}\n{CALL.format('time', 'Köln')}"
    whole, pieces = ask(script, text, tools=TOOLS)
    assert whole.finish_reason == pieces[-1].finish_reason == "tool_calls"
    assert whole.message.content == content(pieces) == "Both:"
    deltas = [call for piece in pieces for call in piece.delta.tool_calls or ()]
    assert [(d.index, bool(d.id), d.type, d.function.name) for d in deltas] == [
        (0, True, "function", "weather"),
        (0, False, None, None),
        (1, True, "function", "time"),
        (1, False, None, None),
    ]
    got = accumulated(script, text, tools=TOOLS)
    assert got.finish_reason == "tool_calls"
    calls = got.message.tool_calls
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [
        ("weather", {"city": "Oslo"}),
        ("time", {"city": "Köln"}),
    ]
    assert len({call.id for call in calls}) == 2
    assert [c.function.arguments for c in whole.message.tool_calls] == [
        c.function.arguments for c in calls
    ]


def test_one_call_where_several_are_not_wanted(script):
    text = f"{CALL.format('weather', 'Oslo')}\n{CALL.format('time', 'Rom')}"
    whole, pieces = ask(script, text, tools=TOOLS, parallel_tool_calls=False)
    assert [call.function.name for call in whole.message.tool_calls] == ["weather"]
    assert whole.finish_reason == pieces[-1].finish_reason == "tool_calls"
    assert whole.message.content is None


def test_a_call_is_withheld_until_it_can_be_read(script):
    text = CALL.format("weather", "Oslo")
    ids = script.tokenizer.encode(text, special=True)
    for most in range(1, len(ids)):
        whole, pieces = ask(script, text, tools=TOOLS, max_tokens=most)
        assert whole.finish_reason == pieces[-1].finish_reason == "length"
        assert (whole.message.content or "") == content(pieces)
        deltas = [call for piece in pieces for call in piece.delta.tool_calls or ()]
        drawn = script.tokenizer.decode(ids[:most])
        if drawn.rstrip().endswith("}}"):  # all but the marker after it
            assert [call.function.name for call in deltas] == ["weather", None]
            assert len(whole.message.tool_calls) == 1
        else:
            # What was drawn of it is content, so that nothing is lost.
            assert not deltas
            assert whole.message.tool_calls is None
            assert whole.message.content == drawn


def test_a_call_that_is_none_is_content(script):
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": Oslo}}\n</tool_call>'
    whole, pieces = ask(script, text, tools=TOOLS)
    assert whole.message.tool_calls is None
    assert whole.finish_reason == pieces[-1].finish_reason == "stop"
    assert whole.message.content == content(pieces) == text


def test_without_tools_a_call_is_content(script):
    text = CALL.format("weather", "Oslo")
    whole, pieces = ask(script, text)
    assert whole.message.tool_calls is None
    assert "Oslo" in whole.message.content
    assert whole.message.content == content(pieces)
    assert whole.finish_reason == "stop"


def test_thoughts_are_apart_and_counted(script):
    text = "<think>\nHm, let me see.\n</think>\n\nForty-two."
    whole, pieces = ask(script, text, logprobs=True, stop="see")
    assert whole.message.reasoning_content == "Hm, let me see."
    assert whole.message.content == content(pieces) == "Forty-two."
    thoughts = [getattr(piece.delta, "reasoning_content", None) or "" for piece in pieces]
    assert "".join(thoughts) == "Hm, let me see."
    said = b"".join(bytes(entry.bytes) for entry in whole.logprobs.content)
    assert said.lstrip(b"\n") == b"Forty-two."
    done = script.client.chat.completions.create(model="scripted", messages=USER, max_tokens=4)
    assert done.usage.completion_tokens_details.reasoning_tokens <= 4


# Failures and clients that leave


def test_a_failure_in_the_middle_of_a_stream(script):
    after = len(script.model.chat_ids(USER))
    ids = script.tokenizer.encode("Well, then")
    script.draws([*ids, script.program.NAN], after)
    request = {"model": "scripted", "messages": USER, "temperature": 0}
    chunks = script.client.chat.completions.create(stream=True, **request)
    got = [next(chunks).choices[0] for _ in range(1 + len(ids))]
    assert content(got) == "Well, then"
    with pytest.raises(openai.APIError) as caught:
        next(chunks)
    assert caught.value.code == "nan_logits"
    with pytest.raises(openai.InternalServerError) as caught:
        script.client.chat.completions.create(**request)
    assert caught.value.code == "nan_logits"
    assert caught.value.response.headers["x-should-retry"] == "false"
    # The server lives, and what was computed is not remembered.
    script.draws(ids, after)
    assert script.client.chat.completions.create(**request).choices[0].message.content


def _post(script, **body):
    """A request by a plain socket, which can be dropped at any moment."""
    host, port = script.server.url.removeprefix("http://").split(":")
    data = json.dumps({"model": "scripted", "temperature": 0, **body}).encode()
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection.sendall(head.encode() + data)
    return connection


def _wait_for(condition, seconds=2.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come about in time"
        time.sleep(0.005)


@pytest.mark.parametrize("way", ["FIN", "RST"])
@pytest.mark.parametrize("streams", [True, False])
def test_who_hangs_up_ends_the_answer_and_gives_its_pages_back(script, streams, way):
    engine = script.model.engine
    script.draws([65] * 900, len(script.model.chat_ids(USER)))
    script.program.delay = 0.02
    before = engine.stats().groups[0]
    connection = _post(script, messages=USER, stream=streams, ignore_eos=True)
    _wait_for(lambda: engine.stats().running == 1)
    if streams:
        assert connection.recv(64)
    if way == "RST":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    _wait_for(lambda: engine.stats().running == 0, 1.0)
    time.sleep(0.05)  # a pass that was running when it was cancelled may end
    passes = script.program.passes
    time.sleep(0.1)
    assert script.program.passes == passes
    after = engine.stats().groups[0]
    assert after.free + after.idle == before.free + before.idle


def test_who_hangs_up_while_the_prompt_is_read_or_waited_for(script):
    engine = script.model.engine
    script.program.delay = 0.05
    long = [{"role": "user", "content": "word " * 700}]
    connections = [_post(script, messages=long, max_tokens=50) for _ in range(6)]  # 4 run
    _wait_for(lambda: engine.stats().running == 4 and engine.stats().waiting == 2)
    for connection in connections:
        connection.close()
    _wait_for(lambda: engine.stats().running == 0 and engine.stats().waiting == 0)


def test_a_slow_reader_slows_only_itself(script):
    script.draws([65] * 900, len(script.model.chat_ids(USER)))
    slow = _post(script, messages=USER, stream=True, ignore_eos=True, max_tokens=900)
    begun = time.monotonic()
    done = script.client.chat.completions.create(
        model="scripted", messages=USER, max_tokens=20, temperature=0
    )
    assert done.choices[0].finish_reason == "length"
    assert time.monotonic() - begun < 5
    # It read nothing meanwhile, and still gets all of it.
    _wait_for(lambda: script.model.engine.stats().running == 0, 20)
    got = b""
    while b"[DONE]" not in got:
        part = slow.recv(1 << 16)
        assert part
        got += part
    slow.close()
    letter = script.tokenizer.decode([65])
    assert got.count(f'"content":"{letter}"'.encode()) == 900
    assert got.count(b'"finish_reason":"length"') == 1


def test_answers_at_the_same_time(script):
    script.draws(script.tokenizer.encode("One and the same."), len(script.model.chat_ids(USER)))

    async def together():
        url = f"{script.server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="-", **STRICT) as client:
            return await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model="scripted", messages=USER, temperature=0, n=2
                    )
                    for _ in range(8)
                )
            )

    answers = asyncio.run(together())
    texts = {choice.message.content for answer in answers for choice in answer.choices}
    assert texts == {"One and the same."}
