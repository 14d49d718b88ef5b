"""Published models: where their files lie, and how they are fetched (from a local server)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from golem_core.errors import NotFound
from golem_pockettts.languages import default_voice
from golem_pockettts.published import CLONES, OPEN, PUBLISHED, VOICES_AT, fetch

VECTORS = Path(__file__).parent / "vectors"
RULES = json.loads((VECTORS / "rules.json").read_text(encoding="utf-8"))
VOICES = json.loads((VECTORS / "voices.json").read_text(encoding="utf-8"))


def test_the_table_is_the_makers() -> None:
    assert set(PUBLISHED) == set(RULES)
    for name, model in PUBLISHED.items():
        told = RULES[name]
        path = f"languages/{name}/model.safetensors"
        assert told["weights"] == f"hf://{CLONES}/{path}@{model.clones}"
        assert told["ungated"] == f"hf://{OPEN}/{path}@{model.open}"
        assert told["tokenizer"] == f"hf://{OPEN}/{model.vocabulary}@{model.vocabulary_at}"
    place = f"hf://{OPEN}/languages/LANGUAGE/embeddings/NAME.safetensors@{VOICES_AT}"
    assert VOICES["place"] == place


def test_the_usual_voices_are_the_makers() -> None:
    for name, voice in VOICES["usual"].items():
        assert default_voice(name) == voice
        assert voice in VOICES["names"]


def test_a_name_that_is_none() -> None:
    with pytest.raises(NotFound, match="no model 'klingon' was published; there are: dutch, "):
        fetch("klingon", lambda line: None)


def lfs(data: bytes) -> dict[str, object]:
    sha256 = hashlib.sha256(data).hexdigest()
    return {"sha256": sha256, "size": len(data), "pointerSize": 1}


class Hub(ThreadingHTTPServer):
    """Two repositories, one of them gated; knows every commit that it is asked for."""

    def __init__(self, files: dict[tuple[str, str], bytes], gated: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.gated = files, gated
        self.served: list[tuple[str, str, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo, commit = "/".join(parts[2:4]), parts[5]
        else:
            repo, commit = "/".join(parts[:2]), parts[3]
        if parts[0] == "api":  # also of a gated one
            siblings = [
                {"rfilename": name, "size": len(data), "lfs": lfs(data)}
                for (of, name), data in self.server.files.items()
                if of == repo
            ]
            body = {"id": repo, "sha": commit, "siblings": siblings, "tags": []}
            self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
        elif repo == CLONES and self.server.gated:
            self.send(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        else:
            name = "/".join(parts[4:])
            data = self.server.files[repo, name]
            if self.command == "GET":
                self.server.served.append((repo, name, commit))
            tag = f'"{hashlib.sha256(data).hexdigest()}"'
            self.send(200, data, {"ETag": tag, "X-Repo-Commit": commit})

    def send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Callable[[bool], Hub]:
    def start(gated: bool) -> Hub:
        header = json.dumps(
            {"mine": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
        ).encode()
        weights = len(header).to_bytes(8, "little") + header + bytes(4)
        files = {
            (repo, "languages/french/model.safetensors"): weights for repo in (CLONES, OPEN)
        } | {
            (OPEN, "languages/french/tokenizer.json"): b"{}",
            (OPEN, "languages/french/embeddings/estelle.safetensors"): b"a voice",
            (OPEN, "languages/french/embeddings/alba.safetensors"): b"another",
            (OPEN, "languages/german/embeddings/juergen.safetensors"): b"of others",
        }
        server = Hub(files, gated)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def stop() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        request.addfinalizer(stop)
        return server

    return start


def golem(server: Hub, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: Hugging Face's library reads its settings once."""
    info = folder / "claims" / "golem_claims-1.0.dist-info"  # a plugin that only knows the tensor
    if not info.exists():
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: golem-claims\nVersion: 1.0\n")
        claims = "[golem.models]\nspeech = nobody:Speech\n[golem.tensors]\nmine = nobody:Speech\n"
        (info / "entry_points.txt").write_text(claims)
    environ = {
        **os.environ,
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "GOLEM_CACHE": str(folder / "cache"),
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(info.parent),
    }
    command = [sys.executable, "-c", "from golem_core.cli import main; main()", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("gated", [True, False])
def test_a_model_is_pulled_whole(serve: Callable[[bool], Hub], tmp_path: Path, gated: bool) -> None:
    server = serve(gated)
    done = golem(server, tmp_path, "pull", "pocket-tts:french", "--json")
    assert done.returncode == 0, done.stderr
    pulled = json.loads(done.stdout)
    assert (pulled["name"], pulled["architecture"]) == ("french", "speech")
    folder = Path(pulled["path"])
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    voices = ["embeddings/alba.safetensors", "embeddings/estelle.safetensors"]
    assert found == [*voices, "model.safetensors", "tokenizer.json"]
    assert (folder / voices[1]).read_bytes() == b"a voice"
    assert ("no access to kyutai/pocket-tts, whose models clone" in done.stderr) == gated
    french, path = PUBLISHED["french"], "languages/french/"
    weights = (OPEN, french.open) if gated else (CLONES, french.clones)
    assert set(server.served) == {
        (weights[0], f"{path}model.safetensors", weights[1]),
        (OPEN, f"{path}tokenizer.json", french.vocabulary_at),
        (OPEN, f"{path}{voices[0]}", VOICES_AT),
        (OPEN, f"{path}{voices[1]}", VOICES_AT),
    }
    assert golem(server, tmp_path, "rm", "french").returncode == 0
    assert not folder.exists()
    blobs = [path for path in (tmp_path / "hf").rglob("blobs/*") if path.is_file()]
    assert blobs == []


def test_what_cannot_be_pulled(serve: Callable[[bool], Hub], tmp_path: Path) -> None:
    server = serve(False)
    for arguments, code, said in (
        (("pocket-tts:klingon",), 3, "no model 'klingon' was published"),
        (("pocket-tts:german",), 3, "kyutai/pocket-tts has no languages/german/model.safetensors"),
        (("pocket-tts:french", "--sha256", "0" * 64), 2, "several files, which have no one sum"),
    ):
        done = golem(server, tmp_path, "pull", *arguments)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
