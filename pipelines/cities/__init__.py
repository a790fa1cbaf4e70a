"""What all city pipelines share: the record of a city, its splits, and its tensors on the way."""
