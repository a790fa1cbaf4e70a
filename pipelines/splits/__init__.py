"""Split rules that several pipelines share."""
