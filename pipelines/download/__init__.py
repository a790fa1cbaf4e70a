"""Downloads: mirror after mirror, resumed where they were cut, and checked."""
