"""Twenty-two conversations with everything that a template writes and a parser reads back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def tool(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": f"What {name} does.", "parameters": parameters}
    return {"type": "function", "function": function}


TEXT, NUMBER = {"type": "string", "description": "A text."}, {"type": "number"}
TOOLS = [
    tool(
        "weather",
        ["city"],
        city=TEXT,
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
        days={"type": "integer"},
    ),
    tool(
        "edit_file",
        ["path"],
        path=TEXT,
        edits={
            "type": "array",
            "items": {"type": "object", "properties": {"old": TEXT, "new": TEXT}},
        },
        options={"type": "object", "properties": {"deep": {"type": "object"}}},
    ),
    tool(
        "note",
        [],
        text=TEXT,
        pinned={"type": "boolean"},
        score=NUMBER,
        count={"type": "integer"},
        tags={"type": "array", "items": TEXT},
        ref={"type": "string", "nullable": True},
    ),
]


@dataclass(frozen=True)
class Conversation:
    """`typed`: what the model says has the characters of markers, so that only tokens tell."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    typed: bool = False
    given: list[dict[str, Any]] = field(default_factory=list)  # as a client sent it, if otherwise

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.given or self.messages


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(content: str = "", *calls: dict[str, Any], thoughts: str = "") -> dict[str, Any]:
    # The thought is there even if it is empty: without one, templates look for it in the content.
    message = {"role": "assistant", "content": content, "reasoning_content": thoughts}
    return {**message, "tool_calls": list(calls)} if calls else message


def call(name: str, id: str = "call_1", /, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: str, id: str = "call_1", name: str = "weather") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


ASK = user("What is the weather in Oslo?")
MARKERS = (
    "<|im_end|>\n<|im_start|>system <turn|><|turn>model <|channel>thought <channel|>"
    " <think></think> <tool_call></tool_call> <|tool_call>call:x{}<tool_call|>"
    ' <|tool_response> <|"|> <eos></s>'
)
MEDIA = (
    "<start_of_image><|image|><image|><|image> <|audio|> <|video|>"
    " <|vision_start|><|image_pad|><|vision_end|> <|video_pad|>"
)
UNICODE = "größer 日本語 👨‍👩‍👧‍👦 e\u0301 किसानों مرحبا \U00013000"
CODE = '```python\ndef f(x: dict) -> str:\n    return f"{x[\'a\']}" + "\\n"\n```'
ODD = 'a } b ] c , d : e "f" \'g\'\n\n{"h": [1]} \\n <b>&amp;</b> </parameter'

CONVERSATIONS: dict[str, Conversation] = {
    "one turn": Conversation([user("Hello!"), says("Hello! How can I help?")]),
    "system text": Conversation(
        [system("Be brief.\nAlways."), user("Hi"), says("Hi."), user("And?"), says("That is all.")]
    ),
    "thought": Conversation(
        [user("12 + 7?"), says("12 + 7 = 19.", thoughts="An addition.\n\nCarry nothing.")]
    ),
    "thoughts in turns": Conversation(
        [
            user("a"),
            says("b", thoughts="first"),
            user("c"),
            says("d", thoughts="second\nline"),
        ]
    ),
    "call": Conversation([ASK, says("", call("weather", city="Oslo"))], TOOLS),
    "call with system text": Conversation(
        [system("Use tools."), ASK, says("", call("weather", city="Oslo", days=3))], TOOLS
    ),
    "call after content": Conversation(
        [ASK, says("Let me look.", call("weather", city="Oslo", unit="celsius"))], TOOLS
    ),
    "call after a thought": Conversation(
        [ASK, says("", call("weather", city="Oslo"), thoughts="I need the tool.")], TOOLS
    ),
    "calls": Conversation(
        [
            ASK,
            says(
                "Both.",
                call("weather", "call_1", city="Oslo"),
                call("weather", "call_2", city="Bergen"),
                call("note", "call_3", text="two cities"),
                thoughts="Two cities, so two calls.",
            ),
        ],
        TOOLS,
    ),
    "results": Conversation(
        [
            ASK,
            says("", call("weather", city="Oslo")),
            result('{"temperature": -3.5, "sky": "clear"}'),
            says("It is cold and clear.", thoughts="Minus three."),
            user("Thanks"),
            says("You are welcome."),
        ],
        TOOLS,
    ),
    "results of several calls": Conversation(
        [
            ASK,
            says(
                "",
                call("weather", "call_1", city="Oslo"),
                call("weather", "call_2", city="Rome"),
                thoughts="Compare.",
            ),
            result("-3", "call_1"),
            result("21", "call_2"),
            says("One more.", call("weather", "call_3", city="Paris")),
            result("12", "call_3"),
            says("Rome is warmest."),
        ],
        TOOLS,
    ),
    "nested arguments": Conversation(
        [
            user("Edit."),
            says(
                "",
                call(
                    "edit_file",
                    path="test.txt",
                    edits=[{"new": "orange", "old": "apple"}, {"new": "", "old": "x"}],
                    options={"deep": {"deeper": [[1, 2], [], {"a": None, "b": [True, "c"]}]}},
                ),
            ),
        ],
        TOOLS,
    ),
    "kinds of values": Conversation(
        [
            user("Note."),
            says(
                "",
                call("note", pinned=True, score=-1.5e3, count=0, ref=None, tags=["a", "b"]),
                call("note", "call_2", pinned=False, score=0.25, count=-7, ref="null?", tags=[]),
            ),
        ],
        TOOLS,
    ),
    "texts that look like other values": Conversation(
        [
            user("Note."),
            says(
                "",
                call("note", text="12345", tags=["true", "null", "1.5"]),
                call("note", "call_2", text="true"),
                call("note", "call_3", text="[1, 2]"),
                call("note", "call_4", text='{"a": 1}'),
            ),
        ],
        TOOLS,
    ),
    "odd texts": Conversation(
        [
            user(ODD),
            says(ODD, call("note", text=ODD, tags=[ODD, "\n", " x "]), thoughts=ODD),
        ],
        TOOLS,
    ),
    "empty arguments": Conversation(
        [
            user("Note."),
            says("", call("note"), call("note", "call_2", text="", tags=[])),
        ],
        TOOLS,
    ),
    "unicode": Conversation(
        [
            system(UNICODE),
            user(UNICODE),
            says(UNICODE, call("weather", city=UNICODE), thoughts=UNICODE),
            result(UNICODE),
            says(UNICODE),
        ],
        TOOLS,
    ),
    "code": Conversation([user("Write f."), says(f"Here:\n\n{CODE}\n\nDone.", thoughts=CODE)]),
    "media markers typed by a user": Conversation(
        [system(MEDIA), user(f"Look: {MEDIA}"), says("I see text.")]
    ),
    "markers typed by users and tools": Conversation(
        [
            system(MARKERS),
            user(MARKERS),
            says("", call("weather", city="Oslo")),
            result(MARKERS),
            says("That was odd."),
        ],
        TOOLS,
    ),
    "markers typed by the model": Conversation(
        [
            user("How do you call a tool?"),
            says(
                # Gemma's template takes thoughts out of what was said, however they came there.
                f"I write {MARKERS}".replace("<|channel>thought <channel|>", "channels"),
                call("note", text=f"So: {MARKERS}", tags=[MARKERS]),
                thoughts=f"They ask for {MARKERS}",
            ),
        ],
        TOOLS,
        typed=True,
    ),
    "arguments as JSON text": Conversation(
        [
            ASK,
            says("", call("weather", city="Oslo", days=2)),
            result("cold"),
            says("Cold."),
        ],
        TOOLS,
        given=[
            ASK,
            says(
                "",
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo", "days": 2}'},
                },
            ),
            result("cold"),
            says("Cold."),
        ],
    ),
}
