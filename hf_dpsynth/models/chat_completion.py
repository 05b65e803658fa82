"""One call of an endpoint: a prompt a request, many in flight, retried while a failure may pass.

No error or log holds a prompt, a text or a key: a failure is kept as its status and number, without the exception that
carried it, since that may quote the server's answer or the address. The client is `huggingface_hub.InferenceClient`,
which retries nothing by itself.
"""

import email.utils
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from hf_dpsynth.logging import progress_bar
from hf_dpsynth.privacy.keys import public_generator, public_seed

if TYPE_CHECKING:
    from hf_dpsynth.models.endpoint import Endpoint

_LONGEST_BACKOFF_SECONDS = 30.0
_LONGEST_PAUSE_SECONDS = 300.0
_EMPTY_RETRIES = 2
_PASSING = frozenset({408, 409, 425, 429})
_WAYS_OUT = {
    400: "Check model=, extra=, max_new_tokens and temperature.",
    401: "Pass the server's key as api_key=.",
    403: "Pass an api_key= that may use this model, or another model=.",
    404: "Check model= and base_url=, which usually ends in /v1.",
    422: "Check model=, extra=, max_new_tokens and temperature.",
}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the server reported: answers, tokens it read and tokens it wrote. Failed requests report nothing."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Asked:
    """What one call asks for. Two equal ones ask the server for the same."""

    prompts: tuple[str, ...]
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Failure:
    """A request without an answer: why, what the user can do, and whether and when it may be sent again."""

    reason: str
    way_out: str = "Check the server, or raise max_retries= or timeout_seconds=."
    passing: bool = True
    limited: bool = False
    retry_after: float = 0.0


class Call:
    """One call of `Endpoint.generate`: a thread a request, common pauses, and the first failure that did not pass.

    Args:
        endpoint (`Endpoint`): the settings.
        client (`InferenceClient`): what sends.
        asked (`Asked`): the prompts and how to answer them.
        texts (`dict[int, str]`): receives the answers by row; rows that are there already are not asked again.
        usage (`Usage`): what was reported before; this call adds to it.
    """

    def __init__(self, endpoint: "Endpoint", client: Any, asked: Asked, texts: dict[int, str], usage: Usage) -> None:
        self.endpoint, self.client, self.asked, self.texts, self.usage = endpoint, client, asked, texts, usage
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._paused_until = 0.0
        self._failure: Failure | None = None

    def run(self) -> None:
        """Ask for every row that is missing, until all are there or one is given up."""
        rows = [row for row in range(len(self.asked.prompts)) if row not in self.texts]
        shown = len(rows) > self.endpoint.max_concurrency
        bar = progress_bar(total=len(rows), unit=" rows", desc=f"Asking {self.endpoint.host}") if shown else None
        pool = ThreadPoolExecutor(max_workers=self.endpoint.max_concurrency, thread_name_prefix="endpoint")
        try:
            futures = {pool.submit(self._answer, row): row for row in rows}
            for future in as_completed(futures):
                future.result()
                if bar is not None and futures[future] in self.texts:
                    bar.update()
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)
            if bar is not None:
                bar.close()

    def complaint(self) -> str:
        """Say in one line how many prompts have no answer, why, and what to do."""
        missing, total = len(self.asked.prompts) - len(self.texts), len(self.asked.prompts)
        failure = self._failure or Failure("the call was stopped")
        return (
            f"{missing} of {total} prompts got no answer from {self.endpoint.host}: {failure.reason}. "
            f"{failure.way_out} A run resumes when it is called again with the same out=."
        )

    def _answer(self, row: int) -> None:
        """Ask for one row until it is answered, given up, or the call is over."""
        failures = empties = answered = 0
        while not self._over():
            outcome = self._ask(row, empties)
            if isinstance(outcome, Failure):
                # a rate limit that lets other rows pass is no outage, however often it meets this one
                moves = outcome.limited and len(self.texts) > answered
                failures, answered = 1 if moves else failures + 1, len(self.texts)
                pause = self._pause(outcome, row, failures)
                if pause is None:
                    self._give_up(outcome)
                    return
                self._stop.wait(pause)
            elif outcome or empties == _EMPTY_RETRIES:
                self.texts[row] = outcome
                return
            else:
                empties += 1

    def _over(self) -> bool:
        """Wait while the server wants to be left alone, and return whether the call has ended."""
        while not self._stop.is_set() and (left := self._paused_until - time.monotonic()) > 0:
            self._stop.wait(left)
        return self._stop.is_set()

    def _pause(self, failure: Failure, row: int, failures: int) -> float | None:
        """Return the seconds to wait before the next try, or None when there is none."""
        wait = failure.retry_after
        if not failure.passing or failures > self.endpoint.max_retries or wait > _LONGEST_PAUSE_SECONDS:
            return None
        with self._lock:  # a server that asks one row to wait means all of them
            self._paused_until = max(self._paused_until, time.monotonic() + wait)
        longest = min(_LONGEST_BACKOFF_SECONDS, self.endpoint.backoff_seconds * 2.0 ** min(failures - 1, 64))
        jitter = public_generator(self.asked.seed, "back-off", row, failures).uniform(0.5, 1.0)
        return float(longest * jitter)

    def _give_up(self, failure: Failure) -> None:
        """End the call: a server that fails one prompt for good is taken to be down, and nothing more is sent."""
        reason = failure.reason
        if failure.retry_after > _LONGEST_PAUSE_SECONDS:
            reason += f" and a request to wait {failure.retry_after:.0f} s"
        elif failure.passing:
            reason += f", and max_retries={self.endpoint.max_retries} is used up"
        with self._lock:
            if self._failure is None:
                self._failure = replace(failure, reason=reason)
        self._stop.set()

    def _ask(self, row: int, empties: int) -> str | Failure:
        """Send one request and return its text, or why there is none."""
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, OfflineModeIsEnabled

        seconds = self.endpoint.timeout_seconds
        try:
            reply = self._send(row, empties)
            content = reply.choices[0].message.content
        except InferenceTimeoutError:
            return Failure(f"no answer within {seconds:g} s")
        except HfHubHTTPError as error:
            return _refusal(error.response.status_code, error.response.headers.get("Retry-After"))
        except OfflineModeIsEnabled:
            return Failure("HF_HUB_OFFLINE is set, which holds for local servers too", "Unset it.", passing=False)
        except httpx2.HTTPError as error:
            return Failure(f"the connection failed ({type(error).__name__})")
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
            # what the client raises on a body that is no chat completion; its message may quote the body
            return Failure("an answer that is no chat completion")
        if not (content is None or isinstance(content, str)):
            return Failure("an answer that is no chat completion")
        self._count(reply.usage)
        return well_formed(content) if content and content.strip() else ""

    def _count(self, reported: Any) -> None:
        """Add the usage that came with an answer, as far as it is one."""
        read, written = (
            number if isinstance(number, int) else 0
            for number in (getattr(reported, "prompt_tokens", 0), getattr(reported, "completion_tokens", 0))
        )
        with self._lock:
            self.usage = Usage(
                calls=self.usage.calls + 1,
                prompt_tokens=self.usage.prompt_tokens + read,
                completion_tokens=self.usage.completion_tokens + written,
            )

    def _send(self, row: int, empties: int) -> Any:
        """Send a row's prompt; after an empty answer with another seed, or it would be empty again."""
        endpoint = self.endpoint
        system = endpoint.system_prompt
        messages = [] if system is None else [{"role": "system", "content": well_formed(system)}]
        return self.client.chat_completion(
            [*messages, {"role": "user", "content": well_formed(self.asked.prompts[row])}],
            model=endpoint.model,
            max_tokens=self.asked.max_new_tokens,
            temperature=self.asked.temperature,
            seed=public_seed(self.asked.seed, row, *((empties,) if empties else ())),
            extra_body=dict(endpoint.extra),
        )


def _refusal(status: int, retry_after: str | None) -> Failure:
    """Return what an HTTP status means. The body is left unread: it may quote the prompt."""
    try:
        reason = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        reason = f"HTTP {status}"
    if status in _PASSING or status >= 500:
        wait = _seconds(retry_after) if status in (429, 503) else 0.0
        return Failure(reason, limited=status == 429, retry_after=wait)
    return Failure(reason, _WAYS_OUT.get(status, "The server's log says more."), passing=False)


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header, which holds seconds or a date; 0 where it holds neither."""
    value = (retry_after or "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def well_formed(text: str) -> str:
    """Replace lone surrogates, which neither JSON over HTTP nor Parquet can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
