"""Entry point of ``python -m kmip_data``, the same as the ``kmip-data`` command."""

import os
import sys

# With ``-m``, Python imports from the current folder first, which may be a stranger's. If it contains
# this package, it is the user's, and child processes import from there, too.
if not sys.flags.safe_path:
    if __file__.startswith(sys.path[0]):
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    else:
        del sys.path[0]

from kmip_data.cli.main import main

if __name__ == "__main__":
    main()
