"""The command line `hf-dpsynth`: verbs without logic of their own.

Exit codes: 0 done, 1 failed or not verified, 2 configuration or usage, 130 interrupted. Errors take one line;
`HF_DPSYNTH_DEBUG=1` shows the traceback. Nothing is reported to anybody.
"""

import os
import sys
from collections.abc import Sequence

import typer

from hf_dpsynth.cli import audits, corpora, exports, inverters, machine, results, runs  # noqa: F401  (they hang their verbs on the application)
from hf_dpsynth.cli.console import app, say
from hf_dpsynth.errors import ConfigError, HfDpsynthError

_ClickError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Private text made usable inside the Hugging Face ecosystem."""
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(2)


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments (`Sequence[str]`, *optional*): the words after `hf-dpsynth`; those of the process when missing.
    Returns:
        `int`: 0, 1, 2 or 130; what went wrong stands on standard error, on one line.
    """
    try:
        code = app(args=arguments, prog_name="hf-dpsynth", standalone_mode=False)
    except Exception as error:  # the last door: a stranger's message may hold private text
        if os.environ.get("HF_DPSYNTH_DEBUG"):
            raise
        code, line = _explained(error)
        _complain(line)
    else:
        code = code if isinstance(code, int) else 0
        if code == 130:
            _complain("interrupted; a run with --out continues when it is called again.")
    return code


def _explained(error: Exception) -> tuple[int, str]:
    """Return the exit code and the line for an error."""
    if isinstance(error, HfDpsynthError):
        return (2 if isinstance(error, ConfigError) else 1), str(error)
    if isinstance(error, _ClickError):
        return 2, f"{error.format_message().rstrip('.')}. See --help."  # type: ignore[attr-defined]
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{error.filename or 'a file'}: {error.strerror}"
    return 1, f"failed with {type(error).__name__}; HF_DPSYNTH_DEBUG=1 shows where, and may show private text."


def _complain(line: str) -> None:
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    text = f"hf-dpsynth: {' '.join(line.split())}\n"
    sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))


def main() -> None:
    """Run the command line as a process, without any progress bar where those of `datasets` are switched off."""
    if os.environ.get("HF_DATASETS_DISABLE_PROGRESS_BARS", "").upper() in {"1", "ON", "YES", "TRUE"}:
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    sys.exit(call())
