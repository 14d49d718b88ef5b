"""Constrained answers: JSON by schemas, grammars, thoughts; refusals that name a part."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

import golem_core
from golem_core.engine import Request, start_engine
from golem_core.errors import BadRequest, PassFailed
from golem_core.sampling import Sampling
from golem_core.testing import decoder
from golem_core.text import ChatFormat, Tokenizer
from golem_core.weights import open_weights

pytest.importorskip("llguidance", reason="llguidance is not installed (golem-core[json])")
jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

from golem_core.sampling import constraint  # noqa: E402

SHORT = {"type": "string", "maxLength": 6}
SCHEMAS = {
    "object": {
        "type": "object",
        "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "optional": {
        "type": "object",
        "properties": {"a": SHORT, "b": {"type": "null"}, "c": {"type": "boolean"}},
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "at": {
                "type": "object",
                "properties": {"x": {"type": "number", "minimum": -1, "maximum": 1}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
        "required": ["at"],
        "additionalProperties": False,
    },
    "array": {"type": "array", "items": {"enum": [1, "two", None]}, "minItems": 2, "maxItems": 4},
    "empty": {"type": "object", "additionalProperties": False},
    "either": {"anyOf": [{"type": "integer", "maximum": 9, "minimum": 0}, {"const": "none"}]},
    "reference": {
        "$ref": "#/$defs/pair",
        "$defs": {"pair": {"type": "array", "items": SHORT, "minItems": 2, "maxItems": 2}},
    },
    "recursive": {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "sons": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1}
                },
                "required": ["sons"],
                "additionalProperties": False,
            }
        },
    },
    "pattern": {"type": "string", "pattern": "[a-c]{2}[0-9]", "maxLength": 8},
    "anchored": {"type": "string", "pattern": "^(x|yy)+z$", "maxLength": 9},
    "date": {"type": "string", "format": "date"},
    "bounds": {"type": "integer", "minimum": 1000000, "maximum": 99999999999},
    "tuple": {"type": "array", "prefixItems": [{"const": 1}, SHORT], "items": False, "minItems": 2},
    "many": {"enum": [f"choice {i}" for i in range(3000)]},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("constraint") / "tiny.gguf"
    decoder("llama").write(path)
    with golem_core.load(path, threads=1, context=512, max_sequences=4, draft="off") as model:
        yield model


def warm(seed, **further):
    return dict(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed, **further)


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_ends_obeys_its_schema(tiny, name):
    schema = SCHEMAS[name]
    whole = 0
    for seed in range(12):
        form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        got = tiny.chat("Hello", response_format=form, max_tokens=300, **warm(seed)).complete()
        if got.finish_reason != "stop":
            continue
        whole += 1
        check = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
        jsonschema.validate(json.loads(got.text), check, format_checker=jsonschema.FormatChecker())
    assert whole >= 8


def test_any_object(tiny):
    told = [
        tiny.generate("x", response_format={"type": "json_object"}, max_tokens=400, **warm(seed))
        for seed in range(12)
    ]
    whole = [one for one in (answer.complete() for answer in told) if one.finish_reason == "stop"]
    assert whole
    assert all(isinstance(json.loads(one.text), dict) for one in whole)


GBNF = r"""
# sums of small numbers, in brackets or not
root  ::= sum "\n"
sum   ::= item ([+-] item){0,3}
item  ::= [1-9] [0-9]? | "(" sum ")" |
          "\u00e9" | [^\x00-\U0010FFFE]
"""


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (("regex", r"(ab|/c){2,3}[0-9]{1,4}"), r"(ab|/c){2,3}[0-9]{1,4}"),
        (("lark", 'start: word ("-" word){1,2}\nword: /[a-z]{1,3}/'), r"[a-z]+(-[a-z]+){1,2}"),
        (GBNF, "[0-9()+é\U0010ffff-]+\n"),
        (r'root ::= [a-z]{2,5} "end" | "\"/\\]" [^\]/a]{1,2}', r'[a-z]{2,5}end|"/\\\][^]/a]{1,2}'),
    ],
)
def test_grammars(tiny, grammar, pattern):
    whole = 0
    for seed in range(10):
        got = tiny.generate("x", grammar=grammar, max_tokens=120, **warm(seed)).complete()
        if got.finish_reason == "stop":
            whole += 1
            assert re.fullmatch(pattern, got.text, re.DOTALL), got.text
    assert whole >= 5


@pytest.mark.parametrize(
    ("kind", "source", "field", "said"),
    [
        ("json_schema", {"properties": {"a": {"not": {}}}}, "response_format", "/properties/a"),
        ("json_schema", {"anyOf": [{}, {"type": "strin"}]}, "response_format", "/anyOf/1"),
        ("json_schema", {"$ref": "#/$defs/x"}, "response_format", "/$defs/x"),
        ("json_schema", {"items": {"pattern": "(?=a)b", "type": "string"}}, None, "/items"),
        ("json_schema", '{"type": ', "response_format", "no JSON"),
        ("json_schema", [], "response_format", "an object"),
        ("regex", "(a", "grammar", "unclosed group"),
        ("lark", "start: nothing", "grammar", "nothing"),
        ("gbnf", 'root ::= "a"\nb ::= c', "grammar", "rule b uses c"),
        ("gbnf", "a ::= [a-z]", "grammar", "no rule root"),
        ("gbnf", 'root ::= "a\n', "grammar", "line 1"),
        ("gbnf", 'root ::= "a"\n\nroot ::= "b"', "grammar", "twice"),
        ("gbnf", "root ::= <think>", "grammar", "tokens"),
        ("gbnf", "root ::= " + "(" * 500 + '"a"' + ")" * 500, "grammar", "nested"),
        ("gbnf", 7, "grammar", "a text"),
        ("ebnf", "", None, "ebnf"),
    ],
)
def test_what_cannot_be_compiled_is_named(tiny, kind, source, field, said):
    with pytest.raises(BadRequest, match=re.escape(said)) as raised:
        constraint.compile(kind, source, tiny.tokenizer)
    assert field is None or raised.value.field == field


def test_deep_and_wide_schemas_end_soon(tiny):
    deep = {"type": "object"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    wide = {"type": "string", "maxLength": 1 << 30, "minLength": 1 << 29}
    for schema in (deep, wide):
        begun = time.monotonic()
        try:
            constraint.compile("json_schema", schema, tiny.tokenizer)
        except BadRequest as error:
            print(error)
        assert time.monotonic() - begun < 10


def test_the_text_is_the_same_with_guesses_and_in_company(tiny):
    schema = SCHEMAS["array"] | {"minItems": 12, "maxItems": 12}
    mask = constraint.compile("json_schema", schema, tiny.tokenizer)
    said = {}
    with open_weights(tiny.weights.path) as weights:
        for draft in ("off", "ngram"):
            for sequences in (1, 4):
                with start_engine(
                    tiny.model,
                    weights,
                    context=512,
                    threads=1,
                    draft=draft,
                    max_sequences=sequences,
                ) as engine:
                    streams = [
                        engine.submit(
                            Request([7] * 40 + [seed], Sampling(**warm(seed)), 150, mask=mask)
                        )
                        for seed in range(6)
                    ]
                    said[draft, sequences] = [stream.result().ids for stream in streams]
                    stats = engine.stats()
        assert stats.drafted_tokens > 0
    assert len({json.dumps(ids) for ids in said.values()}) == 1


def test_nothing_but_an_end_follows_what_is_whole(tiny):
    mask = constraint.compile("regex", "ab", tiny.tokenizer).fresh()
    tok = tiny.tokenizer
    text = [5, tok.token_id("a"), tok.token_id("b")]
    logits = np.zeros(len(tok) + 3, dtype=np.float32)
    mask(np.array(text[:1], np.int32), logits)
    assert np.flatnonzero(np.isfinite(logits)).tolist() == [text[1]]
    mask(np.array(text, np.int32), logits := np.zeros(len(tok), dtype=np.float32))
    assert set(np.flatnonzero(np.isfinite(logits)).tolist()) == tok.end_ids
    again = mask.fresh()
    again(np.array(text[:1], np.int32), logits := np.zeros(len(tok), dtype=np.float32))
    assert np.flatnonzero(np.isfinite(logits)).tolist() == [text[1]]
    with pytest.raises(PassFailed, match="cannot go on"):
        again(np.array([5, 9], np.int32), logits)
    with pytest.raises(BadRequest, match="ignore_eos"):
        Request([1], ignore_eos=True, mask=mask)


def test_a_mask_that_fails_ends_its_own_request_only(tiny):
    def broken(tokens, logits):
        raise ValueError("no mask")

    bad = tiny.engine.submit(Request([1, 2], max_tokens=5, mask=broken))
    good = tiny.engine.submit(Request([1, 2], max_tokens=5, ignore_eos=True))
    with pytest.raises(ValueError, match="no mask"):
        bad.result()
    assert len(good.result().ids) == 5


class Thinker:
    """A vocabulary of bytes, with thoughts between two tokens."""

    @staticmethod
    def tokenizer():
        from golem_core.testing.tiny import LETTERS

        controls = ["<|end|>", "<think>", "</think>", "<call>"]
        tokens = [*LETTERS, *controls, "th"]
        return Tokenizer(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": "gpt-2",
                "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.token_type": np.array([1] * 256 + [3, 4, 4, 4, 1], np.int32),
                "tokenizer.ggml.merges": ["t h"],
                "tokenizer.ggml.eos_token_id": 256,
            }
        )

    form = ChatFormat(thought=("<think>", "</think>"), call=("<call>", "</call>"))


def allowed(mask, text):
    logits = np.zeros(261, dtype=np.float32)
    mask(np.array([0, *text], np.int32), logits)
    return set(np.flatnonzero(np.isfinite(logits)).tolist())


@pytest.mark.parametrize("opened", [True, False])
def test_a_thought_comes_first_and_is_free(opened):
    tok = Thinker.tokenizer()
    newline, x, a = (tok.encode(text)[0] for text in "\nxa")
    prompt = [("<think>\n" if opened else "say", True)]
    mask = constraint.compile("regex", "x{3}", tok).after_thoughts(Thinker.form, prompt).fresh()
    free = set(range(261)) - {256, 259}
    thought = [a, newline, a]
    if not opened:
        assert allowed(mask, []) == {x, 257}
        thought = [257, *thought]
    assert allowed(mask, thought) == free
    thought.append(258)
    assert allowed(mask, thought) == {newline, x}
    assert allowed(mask, [*thought, newline, newline]) == {x}
    assert allowed(mask, [*thought, newline, newline, x, x]) == {x}
    assert allowed(mask, [*thought, newline, newline, x, x, x]) == {256}


def test_a_model_that_is_told_not_to_think_does_not():
    tok = Thinker.tokenizer()
    x = tok.encode("x")[0]
    made = constraint.compile("regex", "x{3}", tok)
    for prompt, thinking in (
        ([("say", True)], False),
        ([("<think>\n\n</think>\n\n", True)], None),
    ):
        mask = made.after_thoughts(Thinker.form, prompt, thinking).fresh()
        assert allowed(mask, []) == {x}


def test_a_family_without_tokens_around_its_thoughts_is_refused(tiny):
    made = constraint.compile("regex", "x", tiny.tokenizer)
    with pytest.raises(BadRequest, match="thinking"):
        made.after_thoughts(Thinker.form, [("say", True)])


def test_what_a_mask_costs(tiny):
    """Printed; a fifth of a second would be a defect."""
    mask = constraint.compile("json_schema", SCHEMAS["object"], tiny.tokenizer)
    times = []
    for seed in range(5):
        fresh = mask.fresh()
        tok, text = tiny.tokenizer, [0]
        rng = np.random.default_rng(seed)
        while len(text) < 80:
            logits = np.zeros(len(tok), dtype=np.float32)
            begun = time.perf_counter()
            fresh(np.array(text, np.int32), logits)
            times.append(time.perf_counter() - begun)
            token = int(rng.choice(np.flatnonzero(np.isfinite(logits))))
            if token in tok.end_ids:
                break
            text.append(token)
    print(f"a mask: mean {np.mean(times) * 1e3:.3f} ms, most {np.max(times) * 1e3:.3f} ms")
    assert np.mean(times) < 0.2


def test_the_command_line_takes_a_schema_or_a_grammar(tiny, tmp_path):
    from click.testing import CliRunner

    from golem_core.cli.app import golem

    schema, grammar = tmp_path / "s.json", tmp_path / "g.lark"
    schema.write_text(json.dumps(SCHEMAS["empty"]))
    grammar.write_text('start: "a" "b"')
    asked = ["run", str(tiny.weights.path), "-p", "x", "--threads", "1", "--seed", "1"]

    def run(*options):
        return CliRunner().invoke(golem, [*asked, *options])

    assert json.loads(run("--json-schema", str(schema)).stdout) == {}
    assert run("--grammar", str(grammar)).stdout == "ab\n"
    both = run("--grammar", str(grammar), "--json-schema", str(schema))
    assert both.exit_code == 2
    schema.write_text("{")
    assert isinstance(run("--json-schema", str(schema)).exception, BadRequest)


def test_what_was_compiled_is_forgotten_with_the_model():
    import gc
    import weakref

    tok = Thinker.tokenizer()
    constraint.compile("regex", "x", tok)
    gone = weakref.ref(tok)
    del tok
    gc.collect()
    assert gone() is None
