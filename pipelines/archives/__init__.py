"""Archives from anywhere, read without trusting them."""
