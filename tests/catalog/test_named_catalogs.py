"""Named catalogs from the configuration file and from environment variables."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_orch import Catalog, InputError, NotFoundError
from paimon_orch.catalog.named_catalogs import find_named_catalog, list_named_catalogs

WriteConfig = Callable[[str], Path]


@pytest.fixture
def write_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteConfig:
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))

    def write(text: str) -> Path:
        path = tmp_path / ".paimon_orch.yaml"
        path.write_text(text)
        return path

    return write


def test_a_name_opens_the_configured_warehouse(write_config: WriteConfig, tmp_path: Path) -> None:
    write_config(f"catalog:\n  lake:\n    warehouse: {tmp_path}/wh\n")
    Catalog(f"{tmp_path}/wh").create_table("db.t", "k INT")

    assert Catalog("lake").tables("db") == ["t"]
    assert list_named_catalogs() == ["lake"]


def test_a_name_that_is_not_configured_is_a_directory(
    write_config: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config("catalog:\n  lake: {warehouse: /nowhere}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"write \./other$"):
        Catalog("other").create_table("db.t", "k INT")
    with pytest.raises(InputError, match=r"write \./other$"):
        Catalog("other").create_database("db")
    Catalog("./other").create_table("db.t", "k INT")

    assert Catalog("other").tables("db") == ["t"]
    assert Catalog("./lake").databases() == []


def test_a_variable_without_a_name_or_an_option_defines_no_catalog(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config("catalog:\n  lake: {warehouse: /nowhere}\n")
    for name in ("__URI", "ONE", "TWO__", "__"):
        monkeypatch.setenv(f"PAIMON_ORCH_CATALOG__{name}", "x")
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__THREE__URI", "x")
    monkeypatch.setenv("ANOTHER_PROGRAM__URI", "x")

    assert list_named_catalogs() == ["lake", "three"]


def test_catalogs_have_names_also_for_a_user_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may run as a number without a name and without HOME."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    (tmp_path / ".paimon_orch.yaml").write_text("catalog:\n  lake: {warehouse: /nowhere}\n")

    assert list_named_catalogs() == ["lake"]


def test_a_home_that_cannot_be_searched_has_no_catalogs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", f"{tmp_path}/{'x' * 300}")  # root may search every directory

    assert list_named_catalogs() == []


def test_variables_add_options_and_take_precedence(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config("catalog:\n  my-lake: {metastore: rest, uri: http://a, lock.enabled: true}\n")
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__MY_LAKE__URI", "http://b")
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__MY_LAKE__TOKEN__PROVIDER", "bear")
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__MY_LAKE__LOCK_CHECK_MAX_SLEEP", "1 s")

    assert find_named_catalog("my-lake") == {
        "metastore": "rest",
        "uri": "http://b",
        "lock.enabled": "true",
        "token.provider": "bear",
        "lock-check-max-sleep": "1 s",
    }


def test_variables_of_storage_options_keep_their_underscores(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config("")
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__LAKE__STORAGE__ENDPOINT_URL", "http://store")

    assert find_named_catalog("lake") == {"storage.endpoint_url": "http://store"}


@pytest.mark.parametrize("text", ["catalog: [1]", "catalog: {lake: text}", "catalog: {1: {a: b}}"])
def test_a_file_of_another_form_is_refused(write_config: WriteConfig, text: str) -> None:
    path = write_config(text)
    with pytest.raises(InputError, match="must have the key 'catalog'") as caught:
        Catalog("lake")
    assert str(path) in str(caught.value)


def test_an_invalid_file_is_refused_without_its_text(write_config: WriteConfig) -> None:
    write_config("catalog:\n  lake: {token: very-secret\n  x: [")
    with pytest.raises(InputError, match=r"line \d+ cannot be read as YAML") as caught:
        Catalog("lake")
    assert "very-secret" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_a_misspelled_name_is_compared_with_the_configured_names(
    write_config: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config("catalog:\n  prod: {warehouse: /nowhere}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match="no catalog 'pord' is configured, only prod"):
        Catalog("pord").table("db.t")
    with pytest.raises(NotFoundError, match="no catalog 'pord' is configured, only prod"):
        Catalog("pord").require_exists()
    with pytest.raises(NotFoundError) as caught:
        Catalog(str(tmp_path / "elsewhere")).table("db.t")
    assert "configured" not in str(caught.value)
