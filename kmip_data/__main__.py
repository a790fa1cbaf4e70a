"""Entry point of ``python -m kmip_data``, the same as the ``kmip-data`` command."""

import os
import sys

# With ``-m``, Python imports from the current folder first, which may be a stranger's. If it is a
# checkout with this package, child processes import from there, too.
if not sys.flags.safe_path:
    if __file__ == os.path.join(sys.path[0], "kmip_data", "__main__.py"):  # noqa: PTH118
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    else:
        del sys.path[0]

from kmip_data.cli.main import main

if __name__ == "__main__":
    main()
