"""Alibaba Cloud OSS. For a range that ends after the end of an object, it returns the object."""

from paimon_orch.stores.s3 import build_s3

STORE = build_s3(
    schemes=("oss",),
    option_prefixes=("fs.oss.",),
    options={
        "accesskeyid": "key",
        "accesskeysecret": "secret",
        "securitytoken": "token",
        "endpoint": "endpoint",
    },
    public_host="oss-{region}.aliyuncs.com",
)
