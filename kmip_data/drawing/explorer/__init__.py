"""One graph as a page to walk about in: balls, paths that make labels, and what a run says and looks at."""
