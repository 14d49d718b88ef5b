"""Where a setting's value comes from, and what is refused."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from golem_core.errors import BadRequest
from golem_core.settings import COMMANDS, SETTINGS, Setting, Settings, config_path, whole


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('threads = 3\ntop_p = 0.5\ncontext = "32K"\n')
    return path


def test_the_order_of_origins(file: Path) -> None:
    environ = {"GOLEM_THREADS": "2", "GOLEM_TOP_P": "0.75"}
    settings = Settings({"threads": "1", "seed": None}, environ, file)
    assert settings["threads"] == 1
    assert settings.origin("threads") == "command line (--threads)"
    assert settings["top_p"] == 0.75
    assert settings.origin("top_p") == "environment (GOLEM_TOP_P)"
    assert settings["context"] == 32768
    assert settings.origin("context") == f"file ({file})"
    assert settings["device"] == "cpu"
    assert settings.origin("device") == "default"
    assert settings["seed"] is None
    assert settings.given("threads", "seed", "top_p") == {"threads": 1, "top_p": 0.75}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("threads", "0", "expected a whole number of at least 1"),
        ("threads", "-1", "expected a whole number of at least 1"),
        ("threads", "two", "expected a whole number of at least 1"),
        ("temperature", "-1", "expected a number of at least 0"),
        ("temperature", "nan", "expected a number of at least 0"),
        ("temperature", "inf", "expected a number of at least 0"),
        ("top_p", "1.5", "expected a number from 0 to 1"),
        ("context", "0", "expected a whole number of at least 1, such as 4096 or 32K"),
        ("context", "4.5K", "expected a whole number of at least 1, such as 4096 or 32K"),
        ("color", "blue", "expected one of auto, always, never"),
    ],
)
def test_a_bad_value_names_the_place(name: str, text: str, expected: str) -> None:
    setting = SETTINGS[name]
    with pytest.raises(BadRequest, match=re.escape(f"{setting.flag} is '{text}'; {expected}")):
        Settings({name: text}, {}, Path("absent"))
    with pytest.raises(BadRequest, match=f"environment's {setting.variable} is '{text}'") as caught:
        Settings({}, {setting.variable: text}, Path("absent"))
    assert caught.value.field == name
    assert caught.value.exit_code == 2


def test_an_empty_variable_is_unset_but_for_plugins() -> None:
    settings = Settings({}, {"GOLEM_THREADS": "", "GOLEM_PLUGINS": ""}, Path("absent"))
    assert settings["threads"] is None
    assert settings["plugins"] == ""


def test_an_unknown_name_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("thread = 3\n")
    with pytest.raises(BadRequest, match="'thread', which is not a setting; did you mean threads"):
        Settings({}, {}, path)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("threads 3\n")
    with pytest.raises(BadRequest, match="is not a TOML file"):
        Settings({}, {}, path)


def test_a_type_that_toml_has_and_the_setting_does_not(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("threads = 2.5\n")
    with pytest.raises(BadRequest, match=r"threads in .* is 2\.5; expected a whole number"):
        Settings({}, {}, path)


def test_golem_config_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    environ = {"GOLEM_CONFIG": str(path)}
    with pytest.raises(BadRequest, match=r"GOLEM_CONFIG names .*, which is not a file"):
        Settings({}, environ)
    path.write_text("seed = 7\n")
    assert config_path(environ) == path
    assert Settings({}, environ)["seed"] == 7


def test_exported_settings_reach_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLEM_ISA", "avx2")
    import os

    Settings({"isa": "generic"}, {}, Path("absent")).export()
    assert os.environ["GOLEM_ISA"] == "generic"


def test_the_names_follow_from_each_other() -> None:
    for name, setting in SETTINGS.items():
        assert setting.name == name
        assert setting.flag == "--" + name.replace("_", "-")
        assert setting.variable == "GOLEM_" + name.upper()
        assert setting.default is not None or setting.unset


PORTS = {"port": Setting("port", whole(0), 4653, "Where it listens.")}


def test_a_command_s_own_settings_stand_in_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = metadata.EntryPoint("serve", "golem_other:serve", COMMANDS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    file = tmp_path / "config.toml"
    file.write_text("threads = 3\n[serve]\nport = 80\n")
    assert Settings({}, {}, file)["threads"] == 3
    assert Settings({}, {}, file, table=PORTS, section="serve")["port"] == 80
    file.write_text("[serve]\nprot = 80\n")
    with pytest.raises(BadRequest, match=r"'prot', which is not a setting; did you mean port\?"):
        Settings({}, {}, file, table=PORTS, section="serve")["port"]
    file.write_text("[serve]\nport = 'x'\n")
    with pytest.raises(BadRequest, match=r"\[serve\] port in .* is 'x'; expected a whole number"):
        Settings({}, {}, file, table=PORTS, section="serve")
    file.write_text("serve = 1\n")
    with pytest.raises(BadRequest, match="sets serve, which is a table of settings"):
        Settings({}, {}, file, table=PORTS, section="serve")
    file.write_text("[serv]\nport = 80\n")
    with pytest.raises(BadRequest, match="'serv', which is not a setting"):
        Settings({}, {}, file)
