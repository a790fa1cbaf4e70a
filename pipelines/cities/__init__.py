"""Base of the city pipelines: the record of a city, its splits and its tensors."""
