"""Files put in place, replaced, removed and locked safely, and what a disk refuses."""
