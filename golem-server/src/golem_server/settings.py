"""What a server is told: where it listens, whom it lets in, which models, how much of anything."""

from __future__ import annotations

from dataclasses import dataclass

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
    media_root     the folder below which requests may name files; None: they may not
    idle_unload    seconds without a request after which a model is unloaded; None: never
    memory         bytes for all loaded models; None: what is available at the start
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
    drain: float = 30.0
    log_json: bool = False
    log_prompts: bool = False
    device: str = "cpu"
    threads: int | None = None
    context: int | None = None
    max_sequences: int = 8
    draft: str = "auto"
