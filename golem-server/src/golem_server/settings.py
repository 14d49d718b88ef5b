"""What a server is told: where it listens, whom it lets in, which models, how much of anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from golem_core.settings import Setting, real, size, text, whole

__all__ = ["SERVE", "ServeSettings"]

PORT = 4653  # "gole" on a telephone's keys


@dataclass(frozen=True)
class ServeSettings:
    """How a server runs; made by the command line, or in Python.

    models         references as `golem_core.load` takes them, or ID=REFERENCE; empty: all that
                   were pulled
    model_folder   every GGUF file in it is offered as well
    default        the id that a request without a model gets; None: the first one
    preload        whether the default model is loaded at the start, not at the first request
    unix           the path of a socket to listen on in place of host and port
    tls_cert       the file of the certificate (PEM); `tls_key` of its key
    api_keys       those who know one are let in; empty: everybody is
    max_body       bytes of a request's body; more is 413
    max_queue      requests that may wait for a place in a pass; one more is 429
    timeout        seconds that a request may take in all; None: as long as it likes
    max_tokens     the most tokens of any answer; None: what the context has room for
    cors           origins whose pages may use the server; ``*`` for all; empty: none
    media_root     the folder below which requests may name files, once a model takes any; None:
                   they may not
    idle_unload    seconds without a request after which a model is unloaded; None: never
    memory         bytes for all loaded models; None: what is available at the start
    precision      how matrices of models that embed are kept, as `golem_core.load_embedder` has it
    drain          seconds for answers to end after the first signal
    log_json       one JSON object a line, not text
    log_prompts    also log what is asked and answered

    The rest is as `golem_core.load` has it; `max_sequences` is for each model.
    """

    models: tuple[str, ...] = ()
    model_folder: str | None = None
    default: str | None = None
    preload: bool = True
    host: str = "127.0.0.1"
    port: int = PORT
    unix: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    api_keys: tuple[str, ...] = ()
    max_body: int = 32 << 20
    max_queue: int = 512
    timeout: float | None = None
    max_tokens: int | None = None
    cors: tuple[str, ...] = ()
    media_root: str | None = None
    idle_unload: float | None = None
    memory: int | None = None
    precision: str = "f32"
    drain: float = 30.0
    log_json: bool = False
    log_prompts: bool = False
    device: str = "cpu"
    threads: int | None = None
    context: int | None = None
    max_sequences: int = 8
    draft: str = "auto"


def _words(value: object) -> tuple[str, ...]:
    """Texts by comma; in the file also a list."""
    listed = value if isinstance(value, (list, tuple)) else text(value).split(",")
    words = tuple(text(word).strip() for word in listed)
    if not all(words):
        raise ValueError("texts by comma, none of them empty")
    return words


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = text(value).lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("true or false")


def _port(value: object) -> int:
    number = whole(0)(value)
    if number > 65535:
        raise ValueError("a port from 0 to 65535")
    return number


def _make(
    name: str, parse: Callable[[object], Any], default: Any, help: str, unset: str = "",
    metavar: str = "TEXT",
) -> Setting:  # fmt: skip
    return Setting(name, parse, default, help, unset, metavar=metavar)


# The settings of `golem serve` that it alone has. In the file they stand under [serve].
SERVE: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        _make("host", text, "127.0.0.1", "The address to listen on.", metavar="HOST"),
        _make("port", _port, PORT, "The port to listen on; 0 for a free one.", metavar="N"),
        _make(
            "unix", text, None, "A socket file to listen on in place of a port.", "none",
            metavar="PATH",
        ),
        _make("tls_cert", text, None, "A certificate (PEM), to serve HTTPS.", "none",
              metavar="FILE"),
        _make("tls_key", text, None, "The key of the certificate (PEM).",
              "in the certificate's file", metavar="FILE"),
        _make("api_key", _words, None, "Keys that let a client in, by comma.",
              "everybody is let in", metavar="KEYS"),
        _make("api_key_file", text, None, "A file of such keys, one a line.", "none",
              metavar="FILE"),
        _make("cors", _words, None,
              "Origins whose pages may use the server, by comma; * for all.", "none",
              metavar="ORIGINS"),
        _make("model_folder", text, None, "A folder whose GGUF files are offered as well.",
              "none", metavar="DIR"),
        _make("default", text, None, "The model of requests that name none.", "the first",
              metavar="ID"),
        _make("preload", _flag, True,
              "Load the default model at the start; off: at the first request.",
              metavar="on|off"),
        _make("idle_unload", real(0.1), None,
              "Seconds without a request after which a model is unloaded.", "never",
              metavar="SECONDS"),
        _make("memory", size, None, "Memory for all loaded models, such as 12G.",
              "what is available at the start", metavar="BYTES"),
        _make("max_sequences", whole(1), 8, "Answers of a model that are drawn at a time.",
              metavar="N"),
        _make("max_queue", whole(0), 512,
              "Requests that may wait for a place; one more is refused (429).", metavar="N"),
        _make("timeout", real(0.1), None, "Seconds that a request may take in all.", "no limit",
              metavar="SECONDS"),
        _make("max_body", size, None, "The largest body of a request, in bytes.", "32M",
              metavar="BYTES"),
        _make("media_root", text, None, "The folder below which requests may name files.",
              "requests may name none", metavar="DIR"),
        _make("precision", text, "f32",
              "How matrices of models that embed are kept, such as int8: docs/embeddings.md.",
              metavar="NAME"),
        _make("drain", real(0), 30,
              "Seconds for answers to end after the first signal; a second one ends at once.",
              metavar="SECONDS"),
        _make("log_json", _flag, False, "Log one JSON object a line.", metavar="on|off"),
        _make("log_prompts", _flag, False, "Log what is asked and answered, too.",
              metavar="on|off"),
    )
}  # fmt: skip

FLAGS = {name for name, setting in SERVE.items() if setting.parse is _flag}
FIELDS = {field.name for field in fields(ServeSettings)}
