"""Message-passing layers and the GPS layer that joins them with attention."""
