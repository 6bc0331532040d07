"""Tencent Cloud COS."""

from paimon_orch.stores.s3 import build_s3

STORE = build_s3(
    schemes=("cosn",),
    option_prefixes=("fs.cosn.",),
    options={
        "userinfo.secretid": "key",
        "userinfo.secretkey": "secret",
        "userinfo.sessiontoken": "token",
        "bucket.endpoint_suffix": "endpoint",
    },
    public_host="cos.{region}.myqcloud.com",
)
