"""Tables whose columns have names and types: Parquet, Arrow, JSON, workbooks, and frames in Python."""

SHEET_MARK = ", sheet "  #: between the names of a workbook and of its sheet
