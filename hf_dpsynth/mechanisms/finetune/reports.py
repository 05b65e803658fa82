"""What may be watched while a model trains: public figures, at each checkpoint, for a progress bar and for trackers.

A figure is a function of the plan, of the ledger's charges, or of the noisy model and public text. No loss, norm,
count or size of private records is ever among them. Trackers note the time, which follows the number of private
records, so their files lie in RUN.private/logs.
"""

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from hf_dpsynth.errors import ConfigError, MissingExtra
from hf_dpsynth.extras import need
from hf_dpsynth.logging import get_logger
from hf_dpsynth.mechanisms.finetune.public_loss import PublicLoss
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import rdp_epsilon
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

_PATIENCE_SECONDS = 30.0
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_ANALYTICS_ENABLED": "False"}

logger = get_logger(__name__)


class Tracker(Protocol):
    """Takes public figures by step."""

    def log(self, values: dict[str, float], step: int) -> None:
        """Write figures, or raise."""
        ...

    def close(self) -> None:
        """Write what is left, or raise."""
        ...


class TensorBoard:
    """Event files of TensorBoard.

    Args:
        folder (`Path`): where the files go.
        name (`str`): the mechanism, which names the curves.
        settings (`dict`): what was planned. Public.
    """

    def __init__(self, folder: Path, name: str, settings: dict[str, Any]) -> None:
        writer = need("torch.utils.tensorboard", extra="reporting", what="report_to='tensorboard'")
        self._writer = writer.SummaryWriter(str(folder / "tensorboard" / name))
        self._writer.add_text("settings", json.dumps(settings, indent=1))

    def log(self, values: dict[str, float], step: int) -> None:
        """Write figures to disk."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class Trackio:
    """A local Trackio project, written by a process without network: `TRACKIO_DIR=RUN.private/logs/trackio`.

    Args:
        folder (`Path`): where the project goes.
        name (`str`): the mechanism, which names the project.
        settings (`dict`): what was planned. Public.
    """

    def __init__(self, folder: Path, name: str, settings: dict[str, Any]) -> None:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("TRACKIO_")}
        self._process = subprocess.Popen(
            # -P: the modules beside the script do not stand in for others
            [sys.executable, "-P", str(Path(__file__).with_name("trackio_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**ours, **_OFFLINE, "TRACKIO_DIR": str(folder / "trackio")},
            text=True,
            start_new_session=True,  # an interrupt of the run lets it finish
        )
        try:
            self._send({"project": name, "name": folder.parent.name.removesuffix(".private"), "config": settings})
        except OSError:
            self.close()
            raise

    def log(self, values: dict[str, float], step: int) -> None:
        """Hand figures to the process."""
        self._send({"values": values, "step": step})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Let the process finish."""
        try:
            with suppress(BrokenPipeError):
                assert self._process.stdin is not None
                self._process.stdin.close()
            code = self._process.wait(_PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
        if code:
            raise OSError(f"the process of Trackio ended with code {code}")


_PUBLIC_LOSS = "public loss"
TRACKERS: dict[str, Callable[[Path, str, dict[str, Any]], Tracker]] = {"tensorboard": TensorBoard, "trackio": Trackio}


def check(report_to: Sequence[str], store: Store) -> None:
    """Refuse trackers that cannot write, before anything is charged.

    Args:
        report_to (`Sequence[str]`): names of trackers.
        store (`Store`): the run directory.
    Raises:
        ConfigError: the run has no directory.
        MissingExtra: a library is not installed.
    """
    for name in report_to:
        if not store.kept:
            raise ConfigError(
                f"report_to={name!r} writes to RUN.private/logs, and this run has no directory. Pass out=, or leave "
                "report_to out."
            )
        if find_spec(name) is None:
            extra = "trackio" if name == "trackio" else "reporting"
            raise MissingExtra(f"report_to={name!r} needs {name}: pip install 'hf-dpsynth[{extra}]'")


class Reports:
    """The figures of one training, and who gets them. A tracker that fails is left out; the training goes on.

    Args:
        report_to (`Sequence[str]`): names of trackers.
        plan (`Plan`): what is trained.
        run (`Run`): whose ledger knows what is spent, and whose store has the folder for logs.
        public_loss (`PublicLoss`): the loss on public text; of no examples when there is none.
    """

    def __init__(self, report_to: Sequence[str], plan: Plan, run: Run, public_loss: PublicLoss) -> None:
        self._main = run.devices.is_main
        self._names = tuple(report_to) if self._main else ()
        self._plan, self._run, self._public_loss = plan, run, public_loss
        self._watches_loss = len(public_loss) > 0
        self._trackers: dict[str, Tracker] = {}

    def __enter__(self) -> "Reports":
        for name in self._names:
            self._try(name, self._open)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._trackers):
            self._try(name, lambda name: self._trackers.pop(name).close())

    def checkpoint(self, step: int, *, shown: bool) -> str:
        """Report a checkpoint.

        Args:
            step (`int`): steps that were taken.
            shown (`bool`): whether a progress bar shows what is returned.
        Returns:
            `str`: the figures in words; empty when nobody watches. Public.
        """
        watched = shown or self._trackers or logger.isEnabledFor(logging.INFO)
        if not (self._main and watched):
            return ""
        figures = self.figures()
        for name in list(self._trackers):
            self._try(name, lambda name: self._trackers[name].log(figures, step))
        words = []
        if "epsilon" in figures:
            words.append(f"epsilon <= {figures['epsilon']:.3g} so far")
        elif self._plan.noise_multiplier == 0:
            words.append("no privacy")
        if "public_loss" in figures:
            words.append(f"public loss {figures['public_loss']:.4g}")
        logger.info("%s, step %d: %s", self._plan.mechanism, step, ", ".join(words))
        return ", ".join(words)

    def figures(self) -> dict[str, float]:
        """Return the figures of now: `learning_rate`, where they exist `epsilon` and `public_loss`. Public.

        Epsilon is a bound on all charges so far, by Renyi DP, which is quick, and never above that of the plan.
        """
        plan = self._plan
        found = {"learning_rate": float(plan.params["learning_rate"])}
        if plan.noise_multiplier and plan.delta is not None and plan.adjacency != "replace-one":
            spent = rdp_epsilon(self._run.ledger.spent(), plan.delta, adjacency=plan.adjacency)
            found["epsilon"] = min(spent, getattr(plan.guarantee, "epsilon", math.inf))
        if self._watches_loss:
            self._try(_PUBLIC_LOSS, lambda name: found.update(public_loss=self._public_loss()))
        return found

    def _open(self, name: str) -> None:
        folder = self._run.store.private_folder() / "logs"
        self._trackers[name] = TRACKERS[name](folder, self._plan.mechanism, self._settings())

    def _settings(self) -> dict[str, Any]:
        plan = self._plan
        return {
            **plan.params,
            "noise_multiplier": plan.noise_multiplier,
            "planned_epsilon": str(getattr(plan.guarantee, "epsilon", None)),
            "delta": plan.delta,
            "public_rows": len(self._public_loss),
        }

    def _try(self, name: str, step: Callable[[str], Any]) -> None:
        """Let a tracker or the public loss do something; whatever it raises, it is left out from then on."""
        try:
            step(name)
        except Exception as error:  # a tracker is not ours, and steps that are charged must not be lost by it
            logger.warning(
                "%r failed with %s and is left out of the reports from now on; the run goes on.",
                name,
                type(error).__name__,
            )
            if name == _PUBLIC_LOSS:
                self._watches_loss = False
            failed = self._trackers.pop(name, None)
            with suppress(Exception):
                if failed is not None:
                    failed.close()
