"""How the class for an architecture is found, and what a model is held to when it is opened."""

from __future__ import annotations

import sys
from importlib.metadata import distributions

import numpy as np
import pytest

from golem_core import plugins
from golem_core.errors import BadWeights, PluginConflict, UnknownArchitecture, Unsupported
from golem_core.model import Generator, Options
from golem_core.testing import VOCAB, decoder
from golem_core.weights import Keys, open_weights

GOOD = """
from golem_core.model import Generator

class Good(Generator):
    vocab = 1
    context = 1
    @classmethod
    def open(cls, weights, options):
        return cls()
    def forward(self, graph):
        raise NotImplementedError

other = 3
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a distribution with entry points and modules importable, in place of all others."""
    monkeypatch.delenv("GOLEM_PLUGINS", raising=False)

    def points_here(group):
        found = distributions(path=[str(tmp_path)])
        return [point for dist in found for point in dist.entry_points.select(group=group)]

    # What this environment has installed is out of sight.
    monkeypatch.setattr(plugins, "entry_points", points_here)
    monkeypatch.syspath_prepend(tmp_path)
    modules = set(sys.modules)

    def put(distribution, points, version="1.0", tensors=None, **sources):
        info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        lines = [f"{name} = {target}" for name, target in points.items()]
        lines = ["[golem.models]", *lines, "[golem.tensors]"]
        lines += [f"{name} = {target}" for name, target in (tensors or {}).items()]
        (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
        for module, source in sources.items():
            (tmp_path / f"{module}.py").write_text(source)

    yield put
    for name in set(sys.modules) - modules:
        if name.startswith("plug_"):
            del sys.modules[name]


def test_finds_by_what_a_file_declares(install):
    install("golem-good", {"good": "plug_good:Good"}, plug_good=GOOD)
    assert "plug_good" not in sys.modules
    kind = plugins.find("good")
    assert issubclass(kind, Generator)
    assert kind.__name__ == "Good"


def test_nothing_is_imported_that_nobody_asked_for(install):
    install("golem-good", {"good": "plug_good:Good"}, plug_good=GOOD)
    install("golem-bad", {"bad": "plug_bad:Bad"}, plug_bad="raise RuntimeError('imported')")
    plugins.find("good")
    assert "plug_bad" not in sys.modules


def test_unknown_architectures_list_what_is_installed(install):
    with pytest.raises(UnknownArchitecture, match="runs 'new'; no plugin is installed"):
        plugins.find("new")
    install("golem-good", {"good": "plug_good:Good", "better": "plug_good:Good"}, plug_good=GOOD)
    with pytest.raises(UnknownArchitecture) as caught:
        plugins.find("new")
    assert str(caught.value) == (
        "no installed plugin runs 'new'; installed: better (golem-good 1.0), good (golem-good 1.0)"
    )


def test_a_broken_plugin_is_not_an_unknown_architecture(install):
    install("golem-bad", {"bad": "plug_bad:Bad"}, plug_bad="import plug_absent")
    with pytest.raises(ModuleNotFoundError, match="plug_absent"):
        plugins.find("bad")


def test_a_plugin_that_is_no_model_is_refused(install):
    install("golem-good", {"three": "plug_good:other"}, plug_good=GOOD)
    with pytest.raises(TypeError, match="plug_good:other of golem-good is no class of golem_core"):
        plugins.find("three")


def test_two_claims_are_a_conflict(install, monkeypatch):
    install("golem-good", {"good": "plug_good:Good"}, plug_good=GOOD)
    install("golem-best", {"good": "plug_good:Good"})
    with pytest.raises(PluginConflict, match="'good' is claimed by golem-best and golem-good"):
        plugins.find("good")
    monkeypatch.setenv("GOLEM_PLUGINS", "golem-llama, Golem_Best")
    assert plugins.find("good").__name__ == "Good"


def test_the_list_of_the_allowed(install, monkeypatch):
    install("golem-good", {"good": "plug_good:Good"}, plug_good=GOOD)
    monkeypatch.setenv("GOLEM_PLUGINS", "")
    assert plugins.installed() == []
    with pytest.raises(UnknownArchitecture, match="GOLEM_PLUGINS is '' and leaves out all others"):
        plugins.find("good")


def test_installed_says_what_fails(install):
    install("golem-good", {"good": "plug_good:Good"}, plug_good=GOOD)
    install("golem-bad", {"bad": "plug_bad:Bad"}, plug_bad="import plug_absent")
    install("golem-one", {"twice": "plug_good:Good"}, version="2.1")
    install("golem-two", {"twice": "plug_good:Good"})
    found = {(p.name, p.distribution): p for p in plugins.installed()}
    assert len(found) == 4
    assert found["good", "golem-good"] == plugins.PluginInfo(
        "good", "golem-good", "1.0", "plug_good:Good", None
    )
    assert found["bad", "golem-bad"].error == "ModuleNotFoundError: No module named 'plug_absent'"
    assert "claimed by golem-one and golem-two" in found["twice", "golem-one"].error
    assert found["twice", "golem-one"].version == "2.1"


# ---- what `checked` holds a model to


class Embeds(Generator):
    """The shortest model: an embedding, and the same turned around."""

    def __init__(self, width, picks=True):
        self.vocab, self.context, self.width, self.picks = VOCAB, 8, width, picks

    @classmethod
    def open(cls, weights, options):
        return cls(Keys(weights, "embeds").whole("embedding_length")).checked(weights)

    def forward(self, graph):
        table = graph.weight("token_embd.weight", (self.vocab, self.width))
        x = graph.embed(table)
        x = graph.rms_norm(x, graph.weight("output_norm.weight", (self.width,)), 1e-5)
        return graph.linear(graph.pick(x) if self.picks else x, table, name="logits")


def test_checked_reads_every_tensor(tmp_path):
    tiny = decoder("embeds", layers=0)
    with open_weights(tiny.write(tmp_path / "good.gguf")) as weights:
        model = Embeds.open(weights, Options())
        assert model.template(weights) is not None
        assert len(model.tokenizer(weights)) == VOCAB
        with pytest.raises(ValueError, match=r"not logits \[.*\] of the rows that are wanted"):
            Embeds(64, picks=False).checked(weights)
    more = tiny.with_tensor("blk.0.more.weight", (4, 4)).write(tmp_path / "more.gguf")
    with (
        open_weights(more) as weights,
        pytest.raises(
            Unsupported, match=r"blk\.0\.more\.weight is a tensor that .*Embeds does not"
        ),
    ):
        Embeds.open(weights, Options())


def test_a_file_that_declares_nothing_is_known_by_a_tensor(install, tmp_path):
    points = {"good": "plug_good:Good", "other": "plug_good:Other"}
    install("golem-good", points, tensors={"a.first": "plug_good:Good"}, plug_good=GOOD)
    safetensors = pytest.importorskip("safetensors.numpy")
    for name, tensor in (("known", "a.first"), ("unknown", "a.second")):
        safetensors.save_file({tensor: np.ones(2, np.float32)}, tmp_path / f"{name}.safetensors")
    with open_weights(tmp_path / "known.safetensors") as weights:
        assert plugins.architecture(weights) == "good"
        assert plugins.of(weights).__name__ == "Good"
    with (
        open_weights(tmp_path / "unknown.safetensors") as weights,
        pytest.raises(BadWeights, match="model_type is missing"),
    ):
        plugins.of(weights)
