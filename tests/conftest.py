"""Settings that must stand before torch is loaded."""

import os

# As the command line does: threads of several test processes on few cores must not spin (ADR 0163).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
