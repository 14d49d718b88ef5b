"""`golem serve`: where it listens, what it reads its settings from, how signals end it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from golem_core.cli.app import run
from golem_core.errors import BadRequest, NotFound
from golem_server.cli import gather
from golem_server.serving import tls, warnings
from golem_server.settings import SERVE, ServeSettings

SECONDS = 30
GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]


@dataclass
class Process:
    """A running `golem serve`."""

    process: subprocess.Popen[str]
    lines: list[str]
    port: int

    def wait_for(self, pattern: str) -> str:
        """The first line of the log that has `pattern`."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for line in list(self.lines):
                if re.search(pattern, line):
                    return line
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data)

    def end(self) -> int:
        return self.process.wait(SECONDS)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts `golem serve` with arguments and waits until it listens."""
    started: list[Process] = []

    def begin(*arguments: object, environ: dict[str, str] | None = None) -> Process:
        process = subprocess.Popen(
            [*GOLEM, "serve", "--port", "0", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        running = Process(process, [], 0)

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                running.lines.append(line.rstrip())

        threading.Thread(target=read, daemon=True).start()
        started.append(running)
        line = running.wait_for("listening on ")
        found = re.search(r":(\d+)[,\s]", line.partition("listening on ")[2])
        running.port = int(found[1]) if found else 0
        return running

    yield begin
    for running in started:
        running.process.kill()
        running.process.wait()
        if running.process.stderr is not None:
            running.process.stderr.close()


def drawing(server: Process) -> None:
    """Waits until an answer is being drawn."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if any(slot["is_processing"] for slot in server.ask("GET", "/slots")[1]):
            return
        time.sleep(0.01)
    raise AssertionError("nothing is drawn")


def test_a_signal_lets_answers_end(start: Callable[..., Process], long_model: Path) -> None:
    server = start(long_model, "-t", 1)
    server.wait_for("loaded long in")
    answers: list[tuple[int, Any]] = []
    body = {"prompt": "ab", "max_tokens": 1500, "ignore_eos": True}
    asking = threading.Thread(
        target=lambda: answers.append(server.ask("POST", "/v1/completions", body))
    )
    asking.start()
    drawing(server)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("SIGTERM: no more requests; 1 to end within 30 s")
    with pytest.raises(ConnectionError):
        server.ask("GET", "/health")
    asking.join(SECONDS)
    assert answers[0][0] == 200
    assert answers[0][1]["usage"]["completion_tokens"] == 1500
    assert server.end() == 0
    assert not any("Traceback" in line for line in server.lines), server.lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(
    start: Callable[..., Process], long_model: Path, number: signal.Signals
) -> None:
    server = start(long_model, "-t", 1)
    server.wait_for("loaded long in")
    body = {"prompt": "ab", "max_tokens": 100_000, "ignore_eos": True}

    def ask() -> None:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            server.ask("POST", "/v1/completions", body)

    asking = threading.Thread(target=ask)
    asking.start()
    drawing(server)
    server.process.send_signal(number)
    server.wait_for("a second signal ends at once")
    begun = time.monotonic()
    server.process.send_signal(number)
    assert server.end() == 128 + number
    assert time.monotonic() - begun < 5
    asking.join(SECONDS)
    assert not any("Traceback" in line for line in server.lines), server.lines


def test_settings_from_all_places(
    start: Callable[..., Process], tiny_model: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    config = tmp_path / "config.toml"
    config.write_text(f'threads = 1\n[serve]\nlog_json = true\napi_key_file = "{keys}"\n')
    environ = {"GOLEM_CONFIG": str(config), "GOLEM_MAX_SEQUENCES": "3"}
    server = start(f"mine={tiny_model}", "--max-queue", 5, environ=environ)
    assert server.ask("GET", "/health")[0] in (200, 503)
    assert server.ask("GET", "/v1/models")[0] == 401
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    connection.request("GET", "/props", headers={"Authorization": "Bearer one"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    assert found["model_alias"] == "mine"
    assert (found["total_slots"], found["max_queue"]) == (3, 5)
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    lines = [json.loads(line) for line in server.lines]
    assert {"/v1/models", "/props"} <= {line.get("path") for line in lines}


def test_a_socket_file(
    start: Callable[..., Process], tiny_model: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "golem.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    server = start(tiny_model, "--unix", path)
    assert f"listening on unix:{path}" in "\n".join(server.lines)
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert run(["serve", str(tiny_model), "--unix", str(path)]) == 1
    assert f"another program listens on {path}; --unix takes another" in capfd.readouterr().err
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0


def test_what_is_no_http_is_refused_in_silence(
    start: Callable[..., Process], tiny_model: Path
) -> None:
    server = start(tiny_model)
    server.wait_for("loaded tiny in")
    lines = list(server.lines)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")  # as a client that wants TLS begins
        assert client.recv(100).startswith(b"HTTP/1.0 400 ")
    assert server.ask("GET", "/health")[0] == 200
    assert server.lines == lines


def certificate(folder: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out",
         str(cert), "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_https(start: Callable[..., Process], tiny_model: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    server = start(tiny_model, "--tls-cert", cert, "--tls-key", key)
    assert "listening on https://127.0.0.1:" in "\n".join(server.lines)
    context = ssl.create_default_context(cafile=str(cert))
    client = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=SECONDS)
    client.request("GET", "/version")
    assert client.getresponse().status == 200
    client.close()


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with pytest.raises(BadRequest, match=f"--tls-cert {key} and its key cannot be used"):
        tls(ServeSettings(tls_cert=str(key)))
    with pytest.raises(NotFound, match=r"no file .*absent"):
        tls(ServeSettings(tls_cert=str(cert), tls_key=str(tmp_path / "absent")))
    with pytest.raises(BadRequest, match="--tls-key has no --tls-cert"):
        tls(ServeSettings(tls_key=str(key)))
    subprocess.run(
        ["openssl", "rsa", "-in", str(key), "-aes256", "-passout", "pass:x",
         "-out", str(tmp_path / "locked.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    with pytest.raises(BadRequest, match="the key is encrypted"):
        tls(ServeSettings(tls_cert=str(cert), tls_key=str(tmp_path / "locked.pem")))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"host": "::1"}, []),
        ({"host": "localhost"}, []),
        ({"host": "0.0.0.0"}, ["everybody who reaches 0.0.0.0", "--api-key"]),
        ({"host": "0.0.0.0", "api_keys": ("k",)}, ["unencrypted", "--tls-cert"]),
        ({"host": "0.0.0.0", "api_keys": ("k",), "tls_cert": "c"}, []),
        ({"host": "0.0.0.0", "unix": "/run/golem"}, []),
        ({"cors": ("*",)}, ["any page"]),
    ],
)
def test_warnings(settings: dict[str, Any], words: list[str]) -> None:
    found = " ".join(warnings(ServeSettings(**settings)))
    assert bool(found) == bool(words)
    assert all(word in found for word in words)


def test_a_port_in_use(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert run(["serve", str(tiny_model), "--port", str(port)]) == 1
    error = capfd.readouterr().err
    assert f"golem: port {port} of 127.0.0.1 is in use; --port takes another (0 for" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["/nowhere.gguf"], 3, "no file /nowhere.gguf"),
        (["{tiny}", "--host", "no such host"], 2, "--host no such host"),
        (["{tiny}", "--host", "192.0.2.1"], 2, "192.0.2.1 is no address of this machine"),
        (["{tiny}", "--port", "70000"], 2, "--port is '70000'; expected a port"),
        (["{tiny}", "--memory", "lots"], 2, "--memory is 'lots'; expected a whole number"),
        (["{tiny}", "--api-key", "a,,b"], 2, "--api-key is 'a,,b'"),
        (["{tiny}", "--api-key-file", "/nowhere"], 3, "/nowhere cannot be read"),
        (["{tiny}", "--default", "other"], 3, "--default other is no model"),
        (["{tiny}", "--port", "0", "--memory", "1K"], 4, "is left"),
        (["{strange}", "--port", "0"], 1, "no installed plugin runs"),
        (["{tiny}", "--port", "0", "--context", "100000"], 2, "context is 100000, expected"),
    ],
)
def test_what_cannot_be_served(
    tiny_model: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    from golem_core.testing import decoder

    strange = tmp_path / "strange.gguf"
    decoder("no-such-family").write(strange)
    given = [word.format(tiny=tiny_model, strange=strange) for word in arguments]
    assert run(["serve", *given]) == code
    error = capfd.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_nothing_to_serve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path))
    assert run(["serve", "--port", "0"]) == 3
    assert "no model to serve: name one, or pull one first" in capfd.readouterr().err


def test_every_setting_reaches_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOLEM_CONFIG", "")
    assert gather((), {}) == ServeSettings()  # the table's defaults are the class's
    texts = {
        "host": "::1", "port": "1", "unix": "u", "tls_cert": "c", "tls_key": "k",
        "api_key": "a, b", "cors": "x,y", "model_folder": "m", "default": "d", "preload": "off",
        "idle_unload": "1.5", "memory": "2G", "max_sequences": "3", "max_queue": "4",
        "timeout": "5", "max_body": "6M", "media_root": "r", "precision": "int8", "drain": "7",
        "log_json": "on", "log_prompts": "yes",
    }  # fmt: skip
    assert set(texts) | {"api_key_file"} == set(SERVE)
    for name, text in texts.items():
        monkeypatch.setenv(f"GOLEM_{name.upper()}", text)
    keys = tmp_path / "keys"
    keys.write_text("c\n")
    monkeypatch.setenv("GOLEM_API_KEY_FILE", str(keys))
    assert gather(("model",), {"max_tokens": "9", "threads": "2"}) == ServeSettings(
        models=("model",), host="::1", port=1, unix="u", tls_cert="c", tls_key="k",
        api_keys=("a", "b", "c"), cors=("x", "y"), model_folder="m", default="d", preload=False,
        idle_unload=1.5, memory=2 << 30, max_sequences=3, max_queue=4, timeout=5.0,
        max_body=6 << 20, media_root="r", precision="int8", drain=7.0, log_json=True,
        log_prompts=True, max_tokens=9, threads=2,
    )  # fmt: skip
    monkeypatch.setenv("GOLEM_PRELOAD", "perhaps")
    with pytest.raises(BadRequest, match="GOLEM_PRELOAD is 'perhaps'; expected true or false"):
        gather((), {})


def test_help_imports_neither_the_server_nor_numpy() -> None:
    program = (
        "import sys; from golem_core.cli.app import run; run(['serve', '--help']); "
        "print(*(m for m in sys.modules if m in ('numpy', 'aiohttp', 'golem_server.app')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "--max-queue" in done.stdout
    assert done.stdout.splitlines()[-1] == ""
