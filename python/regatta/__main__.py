"""`python -m regatta` runs the program with the same arguments."""

import os
import sys

from regatta.executable import RegattaError, program

try:
    found = program()
except RegattaError as error:
    sys.exit(f"error: {error}")
os.execv(found, [str(found), *sys.argv[1:]])
