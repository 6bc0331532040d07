"""Settings of HDFS: from the files of Hadoop, and from storage options.

See docs/storage.md#hdfs.
"""

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from xml.etree import ElementTree as ET

from paimon_orch.errors import InputError
from paimon_orch.safe_text import mask_secrets

CONFIG_VARIABLE = "HADOOP_CONF_DIR"
USER_VARIABLE = "HADOOP_USER_NAME"
_HOME_VARIABLE = "HADOOP_HOME"
_FILES = ("core-site.xml", "hdfs-site.xml")
_DEFAULT_FS = "fs.defaultFS"
_AUTHENTICATION = "hadoop.security.authentication"
_UMASK = "fs.permissions.umask-mode"
_DEFAULT_UMASK = 0o022
_NAME_NODES = "dfs.ha.namenodes."
_MOUNTS = "fs.viewfs.mounttable."
_DEFAULT_PORT = 8020
# Other settings can hold secrets of other stores, and settings are sent to Spark tasks.
_KEYS = "hadoop.security.key.provider.path"
_USED_SETTINGS = ("dfs.", _MOUNTS, _DEFAULT_FS, _AUTHENTICATION, _KEYS, _UMASK)
_CONFIG_DIR, _USER = "config_dir", "user"
_KERBEROS_OPTIONS = ("kerberos_principal", "kerberos_keytab", "kerberos_cache")


@dataclass(frozen=True, slots=True)
class HdfsSettings:
    """How to reach one HDFS, on this machine and in Spark tasks."""

    scheme: str
    authority: str
    """A name service, a mount table of viewfs, or host and port of a NameNode."""
    settings: Mapping[str, str] = field(repr=False)
    """Settings with Hadoop's names."""
    user: str | None = None
    """Who writes, if the cluster trusts its clients; None for ``default_user``."""
    default_user: str | None = None
    """The user of the process that opened the warehouse; tasks of Spark may run as another one."""
    kerberos: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The arguments of the client."""

    @classmethod
    def read(cls, uri: str, options: Mapping[str, Any]) -> "HdfsSettings":
        """Return the settings for a URI; names with a dot among the options are Hadoop's.

        Raises :class:`InputError`.
        """
        known = (_CONFIG_DIR, _USER, *_KERBEROS_OPTIONS)
        unknown = sorted(name for name in options if name not in known and "." not in name)
        if unknown:
            raise InputError(
                f"HDFS has no storage option {', '.join(unknown)}; it has {', '.join(known)}, and "
                "the settings of Hadoop, such as dfs.replication"
            )
        config_dir = _find_config_dir(options.get(_CONFIG_DIR))
        given = {name: _format_value(value) for name, value in options.items() if "." in name}
        settings = {**_read_files(config_dir), **given}
        parsed = urlparse(uri)
        authority = parsed.netloc or _find_default_authority(parsed.scheme, settings, uri)
        user = options.get(_USER) or os.environ.get(USER_VARIABLE)
        found = cls(
            scheme=parsed.scheme,
            authority=authority,
            settings=settings,
            user=None if user is None else str(user),
            default_user=find_process_user(),
            kerberos={name: str(options[name]) for name in _KERBEROS_OPTIONS if name in options},
        )
        if found.scheme == "viewfs" and not any(found._links()):
            raise InputError(
                f"{found.root} is no mount table of "
                + (config_dir or f"Hadoop's configuration ({CONFIG_VARIABLE} is not set)")
                + f": there is no setting {_MOUNTS}{authority}.link.<path>"
            )
        return found

    @property
    def root(self) -> str:
        """The URI without a path."""
        return f"{self.scheme}://{self.authority}"

    @property
    def client_url(self) -> str:
        """The URI without a path, with the port that a host implies."""
        return self.root if self.scheme == "viewfs" else self._complete_url(self.root)

    def has_authority(self, authority: str) -> bool:
        """Return whether a URI of this scheme with an authority, or without one, is of this HDFS."""
        names = (authority, self.authority)
        return not authority or len({name.removesuffix(f":{_DEFAULT_PORT}") for name in names}) == 1

    @property
    def is_configured(self) -> bool:
        """Whether the settings name this HDFS: as a name service, a mount table or the default."""
        default = urlparse(self.settings.get(_DEFAULT_FS, ""))
        return (
            self.scheme == "viewfs"  # whose mount table is among the settings
            or f"{_NAME_NODES}{self.authority}" in self.settings
            or (default.scheme == self.scheme and self.has_authority(default.netloc or "?"))
        )

    @property
    def requires_kerberos(self) -> bool:
        """Whether the clients of the cluster have to prove who they are."""
        return self.settings.get(_AUTHENTICATION, "simple") != "simple"

    @property
    def umask(self) -> int:
        """The permissions that new files and directories do not get.

        Raises :class:`InputError` if the setting cannot be parsed.
        """
        text = self.settings.get(_UMASK)
        return _DEFAULT_UMASK if text is None else _parse_umask(text)

    @property
    def mounts(self) -> tuple[str, ...]:
        """The paths that viewfs maps to other ones; () if it maps all paths."""
        prefix = f"{_MOUNTS}{self.authority}."
        if self.scheme != "viewfs" or f"{prefix}linkFallback" in self.settings:
            return ()
        return tuple(path.rstrip("/") for path, _ in self._links())

    def build_client_settings(self, path: str) -> dict[str, str]:
        """Return the settings for a client that uses ``path`` and what is below it."""
        settings = dict(self.settings)
        prefix = f"{_MOUNTS}{self.authority}."
        if self.scheme == "viewfs":
            for mount, target in self._links():
                settings[f"{prefix}link.{mount}"] = self._complete_url(target)
            if fallback := settings.get(f"{prefix}linkFallback"):
                settings[f"{prefix}linkFallback"] = self._complete_url(fallback)
            else:
                # The client demands one. No path leads to it: see HdfsFileIO.
                settings[f"{prefix}linkFallback"] = self._find_target(path)
        return settings

    def count_name_nodes(self) -> int:
        """Return the largest number of NameNodes of a name service, at least 1."""
        names = (text for name, text in self.settings.items() if name.startswith(_NAME_NODES))
        return max((len(text.split(",")) for text in names), default=1)

    def _complete_url(self, url: str) -> str:
        parsed = urlparse(url)
        authority = parsed.netloc
        is_service = f"{_NAME_NODES}{authority}" in self.settings
        if not is_service and not re.search(r":\d+$", authority):
            authority = f"{authority}:{_DEFAULT_PORT}"
        return f"{parsed.scheme}://{authority}{parsed.path}"

    def _links(self) -> Iterator[tuple[str, str]]:
        prefix = f"{_MOUNTS}{self.authority}.link."
        for name, target in self.settings.items():
            if name.startswith(prefix):
                yield name.removeprefix(prefix), target

    def _find_target(self, path: str) -> str:
        """Return the URL that the longest mount of a path leads to, or any."""
        links = sorted(self._links(), key=lambda link: len(link[0]))
        targets = [url for mount, url in links if f"{path}/".startswith(f"{mount.rstrip('/')}/")]
        return self._complete_url((targets or [links[0][1]])[-1])


def find_process_user() -> str | None:
    """Return the name of the user that runs this process, or None if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _find_config_dir(option: object) -> str | None:
    if option is not None:
        if not Path(str(option)).is_dir():
            raise InputError(f"the storage option {_CONFIG_DIR} is not a directory: {option}")
        return str(option)
    if directory := os.environ.get(CONFIG_VARIABLE):
        return directory
    home = os.environ.get(_HOME_VARIABLE)
    return None if home is None else f"{home}/etc/hadoop"


def _read_files(config_dir: str | None) -> dict[str, str]:
    """Return the used settings of the files in a directory, as far as they exist."""
    settings = dict[str, str]()
    for name in () if config_dir is None else _FILES:
        path = Path(config_dir or "") / name
        try:
            properties = ET.parse(path).iter("property")  # noqa: S314 - of the operator
        except FileNotFoundError:
            continue
        except (OSError, ET.ParseError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        for each in properties:
            key, value = each.findtext("name", "").strip(), each.findtext("value", "").strip()
            if key.startswith(_USED_SETTINGS) and value:
                settings[key] = value
    return settings


def _find_default_authority(scheme: str, settings: Mapping[str, str], uri: str) -> str:
    """Return the authority of ``fs.defaultFS``, for a URI without one."""
    default = urlparse(settings.get(_DEFAULT_FS, ""))
    if default.scheme == scheme and default.netloc:
        return default.netloc
    actual = settings.get(_DEFAULT_FS)
    raise InputError(
        f"warehouse {mask_secrets(uri)!r} has no host, and {_DEFAULT_FS} is "
        + (f"{actual}" if actual else "not set")
        + f"; set {CONFIG_VARIABLE} to the directory of Hadoop's core-site.xml, or write "
        f"{scheme}://host/path"
    )


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_umask(text: str) -> int:
    """Return the bits of an octal mask, or of permissions like ``u=rwx,g=rx,o=``."""
    if re.fullmatch("[0-7]{1,4}", text):
        return int(text, 8) & 0o777
    allowed = 0
    for clause in text.split(","):
        match = re.fullmatch("([ugoa]+)=([rwx]*)", clause.strip())
        if match is None:
            raise InputError(f"{_UMASK} must be like 022 or u=rwx,g=rx,o=; got {text!r}")
        who, bits = match[1].replace("a", "ugo"), sum({"r": 4, "w": 2, "x": 1}[c] for c in match[2])
        for name in who:
            allowed |= bits << {"u": 6, "g": 3, "o": 0}[name]
    return 0o777 & ~allowed
