"""Paimon's options of object stores as options of fsspec."""

from paimon_orch.catalog.store_options import translate_store_options
from paimon_orch.storage.s3_compatible import add_compatible_defaults


def test_options_of_s3_have_three_prefixes_and_two_separators() -> None:
    options = {
        "s3.access-key": "a",
        "fs.s3a.secret.key": "b",
        "s3a.session.token": "c",
        "s3.endpoint": "minio:9000",
        "s3.region": "eu",
        "s3.path-style-access": "true",
        "warehouse": "s3://bucket",
    }
    translated = translate_store_options(options, "s3://bucket/wh")
    assert add_compatible_defaults("s3", translated) == {
        "key": "a",
        "secret": "b",
        "token": "c",
        "endpoint_url": "https://minio:9000",
        "client_kwargs": {"region_name": "eu"},
        "config_kwargs": {"s3": {"addressing_style": "path"}},
    }


def test_the_endpoint_of_s3_is_optional_and_may_have_a_scheme() -> None:
    key = {"s3.access-key": "a", "s3.secret-key": ""}
    for scheme in ("s3", "s3a"):
        assert translate_store_options(key, f"{scheme}://bucket/wh") == {"key": "a"}
    plain = {"s3.endpoint": "http://minio:9000", "s3.path.style.access": "false"}
    assert translate_store_options(plain, "s3://bucket/wh") == {"endpoint_url": "http://minio:9000"}
    region = {"s3.endpoint.region": "a", "s3.region": "b"}
    assert translate_store_options(region, "s3://b/wh") == {"client_kwargs": {"region_name": "a"}}


def test_options_of_another_store_are_left_out() -> None:
    options = {"s3.access-key": "a", "fs.oss.accessKeyId": "b", "fs.oss.endpoint": "oss.example"}
    assert translate_store_options(options, "oss://bucket/t") == {
        "key": "b",
        "endpoint": "oss.example",
    }
    assert translate_store_options(options, "gs://bucket/t") == {}


def test_each_store_has_the_names_of_its_hadoop_file_system() -> None:
    options = {
        "fs.obs.access.key": "a",
        "fs.obs.endpoint": "obs.example",
        "fs.cosn.userinfo.secretId": "b",
        "fs.cosn.userinfo.secretKey": "c",
        "fs.cosn.bucket.endpoint_suffix": "cos.example",
        "s3.access-key": "d",
    }
    assert translate_store_options(options, "obs://bucket/t") == {
        "key": "a",
        "endpoint": "obs.example",
    }
    assert translate_store_options(options, "cosn://bucket/t") == {
        "key": "b",
        "secret": "c",
        "endpoint": "cos.example",
    }
    assert translate_store_options(options, "s3n://bucket/t") == {"key": "d"}
