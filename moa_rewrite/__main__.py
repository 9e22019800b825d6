"""``python -m moa_rewrite`` is ``moarw``."""

import sys

from .cli.main import main

sys.exit(main())
