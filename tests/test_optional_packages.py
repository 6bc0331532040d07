import copy
import sys

import pytest

from paimon_orch.errors import InputError, MissingPackageError
from paimon_orch.optional_packages import is_installed, require_package


def test_an_installed_package_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)

    require_package("wave", "sound", install="wave")

    assert "wave" not in sys.modules


def test_the_error_names_the_package_and_the_command_that_installs_it() -> None:
    with pytest.raises(MissingPackageError) as caught:
        require_package("no_such", "a sea", install="paimon-orch[sea]", package="no-such-binary")

    assert str(caught.value) == (
        "a sea needs the package no-such-binary, which is not installed; "
        "run: pip install 'paimon-orch[sea]'"
    )


def test_the_error_is_one_of_input_and_of_imports() -> None:
    error = copy.copy(MissingPackageError("a message"))

    assert isinstance(error, InputError)
    assert isinstance(error, ImportError)
    assert str(error) == "a message"


def test_the_package_of_a_module_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "wsgiref"]:
        monkeypatch.delitem(sys.modules, name)

    assert is_installed("wsgiref.util")
    assert not is_installed("wsgiref.no_such")
    assert not is_installed("no_such.module")
    assert "wsgiref" not in sys.modules


def test_a_blocked_module_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    assert not is_installed("pyspark")
