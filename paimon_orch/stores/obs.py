"""Huawei Cloud OBS."""

from paimon_orch.stores.s3 import build_s3

STORE = build_s3(
    schemes=("obs",),
    option_prefixes=("fs.obs.",),
    options={
        "access.key": "key",
        "secret.key": "secret",
        "session.token": "token",
        "endpoint": "endpoint",
    },
    public_host="obs.{region}.myhuaweicloud.com",
)
