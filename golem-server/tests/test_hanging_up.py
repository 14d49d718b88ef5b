"""A client that leaves in the middle of a stream, whatever the API: its place is free at once."""

from __future__ import annotations

import json
import socket
import struct
import time
from urllib.parse import urlsplit

import pytest

from .scripted_server import scripted_server

TURNS = [{"role": "user", "content": "Go on."}]
STREAMS = {
    "/v1/chat/completions": {"messages": TURNS, "stream": True},
    "/v1/completions": {"prompt": "Go on.", "stream": True},
    "/v1/responses": {"input": "Go on.", "stream": True},
    "/v1/messages": {"messages": TURNS, "max_tokens": 900, "stream": True},
    "/api/chat": {"messages": TURNS},
    "/api/generate": {"prompt": "Go on."},
}


@pytest.fixture(scope="module")
def script(trained_model, serve_in_thread):
    with scripted_server(trained_model, serve_in_thread) as script:
        script.draws(script.tokenizer.encode("word") * 900, 0)
        script.program.delay = 0.005
        yield script


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_ends_when_its_client_leaves(script, path, reset):
    place = urlsplit(script.url)
    body = json.dumps({"model": "scripted", **STREAMS[path]}).encode()
    with socket.create_connection((place.hostname, place.port), timeout=10) as client:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        client.sendall(head.encode() + body)
        read = b""
        while read.count(b"\n") < 20:
            got = client.recv(4096)
            assert got, read
            read += got
        assert b" 200 OK" in read
        assert script.model.engine.stats().running == 1
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left = time.monotonic()
    [served] = script.models.loaded()
    while script.model.engine.stats().running or served.users:
        assert time.monotonic() - left < 1, "its place is still taken"
        time.sleep(0.01)
