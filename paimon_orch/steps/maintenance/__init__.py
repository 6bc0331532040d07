"""Statistics, bucket rescale, file indexes, manifests and tags."""
