"""Raw data of datasets: found, fetched or generated, verified, and stored in the home folder."""
