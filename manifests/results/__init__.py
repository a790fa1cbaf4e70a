"""Result tables of the paper, as data. Never ours."""
