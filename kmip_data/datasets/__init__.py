"""The public dataset classes, by family, and the transforms that go with them."""
