"""A process of its own that writes figures to Trackio: JSON lines on its standard input, the settings first.

Trackio prints, asks the Hub for the user's name and fixes its folder when it is imported, so it gets a process whose
environment is ours. It is run as a script and imports nothing of this package. When the other end of the pipe is gone,
it finishes and ends.
"""

import json
import sys


def main() -> None:
    """Log each line until the input ends."""
    import trackio  # type: ignore[import-not-found, unused-ignore]

    settings = json.loads(sys.stdin.readline())
    # explicit: what is found on the machine would be watched and logged otherwise
    run = trackio.init(**settings, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    for line in sys.stdin:
        entry = json.loads(line)
        run.log(entry["values"], step=entry["step"])
    run.finish()


if __name__ == "__main__":
    main()
