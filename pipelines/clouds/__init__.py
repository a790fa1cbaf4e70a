"""Point clouds: files, blocks of rooms, and graphs made from them."""
