"""Arrays of graphs on their way to records: read by layout, checked, mapped and sorted."""
