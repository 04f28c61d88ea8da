"""Settings that change while the operator runs."""

from pathlib import Path

import pytest

from kvgate.app.operator.settings_file import SettingsFile
from kvgate.edge.errors import EdgeError

ROOT = Path(__file__).parents[3]


def test_without_a_file_all_is_default() -> None:
    assert SettingsFile(None).current().workers == 4
    assert not SettingsFile(None).refresh()


@pytest.mark.parametrize("text", ["workers: many", "workers:", "[]", "\x00"])
def test_it_does_not_begin_with_settings_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)

    with pytest.raises(EdgeError, match=r"settings\.yaml"):
        SettingsFile(path)


def test_it_does_not_begin_without_the_file_that_was_named(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="cannot be read"):
        SettingsFile(tmp_path / "settings.yaml")


def test_a_change_is_taken_and_no_change_is_none(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("workers: 2")
    settings = SettingsFile(path)
    unchanged = settings.refresh()
    path.write_text("workers: 3")

    assert (unchanged, settings.refresh(), settings.refresh()) == (False, True, False)
    assert settings.current().workers == 3


def test_a_change_for_the_worse_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("workers: 2")
    settings = SettingsFile(path)
    path.write_text("workers: 0")
    refused = settings.refresh()
    path.unlink()

    assert (refused, settings.refresh(), settings.current().workers) == (False, False, 2)
