"""Raw data of datasets: find, download or generate it, verify it, and store it in the home folder."""
