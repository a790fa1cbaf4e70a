"""One module for each file format of your own graphs; registered in ``file_formats.py``."""
