"""The parameters that OpenAI's two text APIs share, and llama.cpp's beside them, as tables.

Each is obeyed, or refused by its name where it asks for what golem does not do; a value that says
"not at all" is no reason to refuse. Those that are nowhere in this file are ignored, as `user`,
`metadata`, `store` and `service_tier` are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from golem_server.ask import MOST_CHOICES, Constraint
from golem_server.parse import Body, field, invalid

__all__ = ["common", "grammar", "model_name", "refuse", "response_format", "stream_options"]

# What the APIs call a field of `Sampling`, in the order in which the first that is given counts.
SAMPLING: tuple[tuple[str, str, type], ...] = (
    ("temperature", "temperature", float),
    ("top_p", "top_p", float),
    ("top_k", "top_k", int),
    ("min_p", "min_p", float),
    ("typical_p", "typical_p", float),
    ("repeat_penalty", "repeat_penalty", float),
    ("repetition_penalty", "repeat_penalty", float),
    ("frequency_penalty", "frequency_penalty", float),
    ("presence_penalty", "presence_penalty", float),
    ("repeat_last_n", "penalty_window", int),
    ("seed", "seed", int),
)

# The most tokens of an answer, the name that counts first.
LIMITS = ("max_completion_tokens", "max_tokens", "n_predict")


def _is(*values: object) -> Callable[[object], bool]:
    return lambda value: any(value == one and type(value) is type(one) for one in values)


def _zero(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0


def _none_left(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0


# What golem does not do: a parameter, the values that do not ask for it, and what to say.
REFUSED: Mapping[str, tuple[Callable[[object], bool], str]] = {
    # OpenAI's
    "audio": (_is(), "golem's models write text"),
    "modalities": (_is(["text"], []), "golem's models write text"),
    "web_search_options": (_is(), "golem never looks anything up"),
    "functions": (_is([]), "use tools"),
    "function_call": (_is(), "use tool_choice"),
    "verbosity": (_is("medium"), "say in a message how long the answer should be"),
    "moderation": (_is(), "golem moderates nothing"),
    # llama.cpp's
    "mirostat": (_zero, "golem does not have Mirostat"),
    "dynatemp_range": (_zero, "golem has one temperature for an answer"),
    "xtc_probability": (_zero, "golem does not have XTC"),
    "dry_multiplier": (_zero, "golem does not have DRY; there is repeat_penalty"),
    "top_n_sigma": (_none_left, "golem does not have top-n-sigma; there is min_p"),
    "min_keep": (_none_left, "filters may leave one token"),
    "samplers": (_is(), "the order of golem's filters is fixed"),
    "n_probs": (_zero, "use logprobs"),
    "post_sampling_probs": (_is(False), "logprobs are those before sampling"),
    "t_max_predict_ms": (_none_left, "use max_tokens"),
    "n_indent": (_zero, "golem has no such rule"),
    "n_keep": (lambda value: isinstance(value, int), "n_keep is a number"),
    "id_slot": (_is(-1), "golem has no slots to choose from; it finds a known beginning itself"),
    "lora": (_is([]), "golem does not load adapters"),
    "return_tokens": (_is(False), "use /tokenize"),
    "return_progress": (_is(False), "golem does not say how far it has read"),
    "timings_per_token": (_is(False), "timings come with the end"),
    "response_fields": (_is([]), "every answer is whole"),
}


def refuse(body: Body, table: Mapping[str, tuple[Callable[[object], bool], str]] = REFUSED) -> None:
    """Raises a 400 for the first parameter that asks for what golem does not do."""
    for name, (harmless, reason) in table.items():
        value = body.get(name)
        if value is not None and not harmless(value):
            raise invalid(f"{name} is not supported: {reason}", name, "unsupported")


def model_name(body: Body) -> str | None:
    """The model that is asked for; None for the server's own choice."""
    return field(body, "model", str) or None


def common(body: Body) -> dict[str, Any]:
    """The arguments of an `Ask` that both APIs have: sampling, limits, stop strings, `n`."""
    refuse(body)
    sampling: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, golem, kind in SAMPLING:
        value: Any = field(body, name, kind)
        if value is not None and golem not in sampling:
            sampling[golem] = max(0, value) if golem == "top_k" else value
            names[golem] = name
    bias = _logit_bias(body.get("logit_bias"))
    if bias:
        sampling["logit_bias"] = bias
    most: int | None = None
    for name in LIMITS:
        limit = field(body, name, int, low=-1)
        if limit is None or "max_tokens" in names:
            continue
        if limit == 0:
            raise invalid(f"{name} is 0, expected at least 1, or -1 for no limit", name)
        most, names["max_tokens"] = (None if limit == -1 else limit), name
    return {
        "sampling": sampling,
        "names": names,
        "max_tokens": most,
        "stop": body.get("stop"),
        "n": field(body, "n", int, low=1, high=MOST_CHOICES) or 1,
        "ignore_eos": field(body, "ignore_eos", bool) or False,
        "cache_prompt": field(body, "cache_prompt", bool) is not False,
    }


def _logit_bias(given: object) -> dict[int, float]:
    """OpenAI's object of token ids, or llama.cpp's list of pairs, in which false means never."""
    if given is None:
        return {}
    if isinstance(given, dict):
        pairs = list(given.items())
    elif isinstance(given, list) and all(isinstance(p, list) and len(p) == 2 for p in given):
        pairs = [(key, -100 if bias is False else bias) for key, bias in given]
    else:
        raise invalid("logit_bias is no object; expected token ids with -100 to 100", "logit_bias")
    found: dict[int, float] = {}
    for key, bias in pairs:
        if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20:
            key = int(key)
        found[key] = bias
        if not isinstance(key, int) or isinstance(key, bool):
            raise invalid(f"logit_bias has the key {key!r}, expected a token id", "logit_bias")
    return found


def stream_options(body: Body) -> tuple[bool, bool, bool]:
    """Whether to stream, to end with the usage, and to hide the lengths of the pieces."""
    streams = field(body, "stream", bool) or False
    options = field(body, "stream_options", dict) or {}
    usage = field(options, "include_usage", bool, within="stream_options") or False
    hides = field(options, "include_obfuscation", bool, within="stream_options") or False
    return streams, usage, hides


def grammar(body: Body) -> Constraint | None:
    """llama.cpp's ``grammar``, in GBNF or Lark, and its ``json_schema``."""
    text = field(body, "grammar", str)
    schema = body.get("json_schema")
    if text and schema is not None:
        raise invalid("grammar and json_schema are both given; choose one", "grammar")
    if text:
        # Rules are name ::= ... in the one and name: ... in the other.
        return Constraint("gbnf" if "::=" in text else "lark", text, "grammar")
    if schema is None:
        return None
    return Constraint("json_schema", _schema(schema, "json_schema"), "json_schema")


def response_format(body: Body) -> Constraint | None:
    """OpenAI's ``response_format``, or what `grammar` reads."""
    other = grammar(body)
    wanted = field(body, "response_format", dict)
    if wanted is None:
        return other
    place = "response_format"
    kind = field(wanted, "type", str, choices=("text", "json_object", "json_schema"), within=place)
    if kind is None:
        raise invalid(f"{place}.type is missing", f"{place}.type", "missing_required_parameter")
    if kind == "text":
        return other
    if other is not None:
        raise invalid(f"{place} and {other.param} are both given; choose one", place)
    if kind == "json_object":
        schema = wanted.get("schema")
        if schema is None:
            return Constraint("json_object", "", place)
        return Constraint("json_schema", _schema(schema, f"{place}.schema"), f"{place}.schema")
    named = field(wanted, "json_schema", dict, within=place)
    inner = f"{place}.json_schema"
    if named is None:
        raise invalid(f"{inner} is missing", inner, "missing_required_parameter")
    field(named, "name", str, within=inner)
    schema = named.get("schema")
    if schema is None:
        raise invalid(f"{inner}.schema is missing", f"{inner}.schema", "missing_required_parameter")
    return Constraint("json_schema", _schema(schema, f"{inner}.schema"), f"{inner}.schema")


def _schema(schema: object, place: str) -> Any:
    if not isinstance(schema, (dict, bool)):
        raise invalid(f"{place} is no JSON Schema; expected an object", place)
    return schema
