"""The twelve texts that greedy generation is compared on, for each real model.

Of different kinds and lengths: a word, questions, prose, code, other alphabets, numbers, a chat
template's turns, one longer than Gemma 3's window of 512 and one of more than 1,500 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """A text for the model; `special` when special tokens written in it are meant as such."""

    name: str
    text: str
    special: bool = False


CODE = '''def merge(left, right):
    """Merges two sorted lists into one sorted list."""
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
'''

STORY = (
    "The lighthouse stood at the end of a long spit of sand, and for forty years nobody but "
    "Marten had climbed its stairs. On the first evening of autumn he found a letter under the "
    "door, written in a hand he had not seen since he was a boy. He read it twice, put it in his "
    "coat, and"
)

TABLE = "| planet | moons |\n|---|---|\n| Mercury | 0 |\n| Venus | 0 |\n| Earth | 1 |\n| Mars |"

RULES = (
    "Every member may borrow three books at a time.",
    "A book that somebody else waits for must be returned after two weeks.",
    "Maps and newspapers are read in the reading room and do not leave it.",
    "The library is closed on the second Monday of each month for cleaning.",
    "Children under ten need the card of a parent or of a teacher.",
    "Whoever loses a book pays what a new copy costs, and a small fee.",
    "Music may be heard with headphones in the rooms on the upper floor.",
    "Dogs wait outside, where there is water for them in summer.",
)

LOG = (
    "{hour:02d}:{minute:02d} pump {pump} pressure {pressure} kPa, valve {valve}, flow {flow} l/min"
)


def _rules(count: int) -> str:
    """A numbered list of `count` house rules, the eight sentences in turn."""
    lines = (f"{number}. {RULES[number % len(RULES)]}" for number in range(1, count + 1))
    return "The rules of the town library.\n\n" + "\n".join(lines) + f"\n{count + 1}."


def _log(lines: int) -> str:
    """A plant's log of `lines` lines that differ in every figure, then a question about it."""
    rows = [
        LOG.format(
            hour=6 + line // 12,
            minute=line % 12 * 5,
            pump="ABC"[line % 3],
            pressure=310 + line * 7 % 41,
            valve="open" if line % 5 else "closed",
            flow=18 + line * 11 % 29,
        )
        for line in range(lines)
    ]
    return "\n".join([*rows, "", "Summary: during the morning the pressure"])


CHATML = (
    "<|im_start|>system\nYou are a careful assistant who answers briefly.<|im_end|>\n"
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
)
TURNS = "<start_of_turn>user\nWhy is the sky blue?<end_of_turn>\n<start_of_turn>model\n"

_COMMON = (
    Prompt("word", "Once"),
    Prompt("fact", "The capital of France is"),
    Prompt("story", STORY),
    Prompt("python", CODE),
    Prompt("sql", "-- Ten best customers by revenue in 2023\nSELECT"),
    Prompt("german", "Im Herbst, wenn die Blätter fallen, geht der alte Müller"),
    Prompt("chinese", "人工智能的发展历史可以追溯到"),
    Prompt("russian", "Зимой в нашем городе очень холодно, поэтому люди"),
    Prompt("table", TABLE),
    Prompt("rules", _rules(34)),  # past 512 tokens
    Prompt("log", _log(62)),  # past 1,500 tokens
)

# The files as `golem pull pypi:...` and the test setting know them.
PROMPTS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": (*_COMMON, Prompt("chat", CHATML, special=True)),
    "gemma-3-270m-q4_k_m.gguf": (*_COMMON, Prompt("chat", TURNS, special=True)),
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": (*_COMMON, Prompt("chat", CHATML, special=True)),
}
