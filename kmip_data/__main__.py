"""Entry point of ``python -m kmip_data``, the same as the ``kmip-data`` command."""

from kmip_data.cli.main import main

if __name__ == "__main__":
    main()
