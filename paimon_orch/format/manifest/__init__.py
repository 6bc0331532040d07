"""Manifests, manifest lists and index manifests, and the Avro containers that hold them."""
