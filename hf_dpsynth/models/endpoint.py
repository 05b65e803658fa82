"""Language models behind an OpenAI-compatible HTTP server, or at an inference provider of the Hub.

Prompts are public or already privatized, and still no error, log or repr holds a prompt, a text or a key: failures are
told by status and number alone, without the exception that carried them, since that may quote the server's answer.
Source of the interface: the chat completions of https://platform.openai.com/docs/api-reference/chat, as
`huggingface_hub.InferenceClient` sends them.
"""

import email.utils
import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.logging import get_logger, progress_bar
from hf_dpsynth.privacy.keys import public_generator, public_seed

KEY_VARIABLE = "HF_DPSYNTH_ENDPOINT_KEY"
_PROVIDERS = "router.huggingface.co"
_MOST_CONNECTIONS = 100  # of the HTTP client that huggingface_hub shares in a process
_LONGEST_BACKOFF_SECONDS = 30.0
_LONGEST_PAUSE_SECONDS = 300.0
_EMPTY_RETRIES = 2
_USUAL_PROMPT_TOKENS = 256
_PASSING = frozenset({408, 409, 425, 429})
_WAYS_OUT = {
    400: "Check model=, extra=, max_new_tokens and temperature.",
    401: "Pass the server's key as api_key=.",
    403: "Pass an api_key= that may use this model, or another model=.",
    404: "Check model= and base_url=, which usually ends in /v1.",
    422: "Check model=, extra=, max_new_tokens and temperature.",
}

logger = get_logger(__name__)


class Work(Protocol):
    """What a plan says about the calls of a run; `Plan.cost` is one."""

    @property
    def lm_calls(self) -> int:
        """Return the number of prompts."""
        ...

    @property
    def tokens(self) -> int:
        """Return the most tokens that are generated."""
        ...


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the server reported: answers, tokens it read and tokens it wrote. Failed requests report nothing."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Price:
    """An estimate before a run: calls, tokens, and their price where prices were given."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    total: float | None


class Endpoint:
    """A model behind an OpenAI-compatible server, or at an inference provider; satisfies `TextGenerator`.

    Nothing is sent before the first `generate`. Private text is never sent: no mechanism that shows private text to a
    model accepts an endpoint.

    Args:
        model (`str`): the model's name at the server; without `base_url` a Hub id, `"org/name"` or
            `"org/name:provider"`.
        base_url (`str`, *optional*): the server, e.g. `"http://127.0.0.1:8000/v1"`; the inference providers of the
            Hub when missing. Never with a user name or password.
        api_key (`str`, *optional*): the server's key. The token of `hf auth login` is used when missing, and goes to
            huggingface.co alone.
        max_concurrency (`int`): requests in flight, at most 100.
        timeout_seconds (`float`): longest silence of the server before a request is retried.
        max_retries (`int`): how often a prompt is sent again after a failure that may pass.
        backoff_seconds (`float`): the pause before the first retry; it doubles up to 30 seconds and is jittered. A
            Retry-After of the server is honoured up to 300 seconds.
        system_prompt (`str`, *optional*): a system message before each prompt. Public.
        extra (`dict`, *optional*): more fields of the request, e.g. `{"top_p": 0.9}`; None takes a field out.
        price_per_million_input (`float`, *optional*): price of a million prompt tokens, for `price`.
        price_per_million_output (`float`, *optional*): price of a million generated tokens, for `price`.
    Examples:
        >>> Endpoint("llama-3", "http://127.0.0.1:8000/v1", api_key="secret")
        Endpoint('llama-3@127.0.0.1', max_concurrency=8)
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        max_concurrency: int = 8,
        timeout_seconds: float = 60.0,
        max_retries: int = 5,
        backoff_seconds: float = 0.5,
        system_prompt: str | None = None,
        extra: Mapping[str, Any] | None = None,
        price_per_million_input: float | None = None,
        price_per_million_output: float | None = None,
    ) -> None:
        self.model = _name(model)
        self.base_url = base_url
        self.host = _PROVIDERS if base_url is None else _host(base_url)
        self.max_concurrency = _whole("max_concurrency", max_concurrency, 1, _MOST_CONNECTIONS)
        self.timeout_seconds = _number("timeout_seconds", timeout_seconds, 1e-3)
        self.max_retries = _whole("max_retries", max_retries, 0, 1000)
        self.backoff_seconds = _number("backoff_seconds", backoff_seconds, 0.0)
        self.system_prompt = system_prompt
        self.extra = _fields(extra)
        self.price_per_million_input = price_per_million_input
        self.price_per_million_output = price_per_million_output
        for name in ("price_per_million_input", "price_per_million_output"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), 0.0)
        self._api_key = _key(api_key)
        self._usage = Usage()
        self._lock = threading.Lock()
        self._unfinished: tuple[object, dict[int, str]] = (None, {})

    @classmethod
    def from_url(cls, url: str) -> "Endpoint":
        """Return the endpoint of an address with the model's name behind a '#'.

        The key, which must not stand in an address, is read from the environment variable HF_DPSYNTH_ENDPOINT_KEY.

        Args:
            url (`str`): e.g. `"http://127.0.0.1:8000/v1#llama-3"`.
        Raises:
            ConfigError: the address is none, or names no model.
        Examples:
            >>> Endpoint.from_url("http://127.0.0.1:8000/v1#org/name").id
            'org/name@127.0.0.1'
        """
        base_url, _, model = url.partition("#")
        host = _host(base_url)
        if not model:
            raise ConfigError(f"the endpoint at {host} names no model; write it behind a '#', e.g. .../v1#llama-3")
        return cls(model, base_url, api_key=os.environ.get(KEY_VARIABLE) or None)

    @property
    def id(self) -> str:
        """Return the public name: the model and the server's host."""
        return f"{self.model}@{self.host}"

    @property
    def usage(self) -> Usage:
        """Return what the server reported since this object was made."""
        return self._usage

    def __repr__(self) -> str:
        return f"Endpoint({self.id!r}, max_concurrency={self.max_concurrency})"

    def price(self, cost: Work) -> Price:
        """Estimate the tokens and the price of a plan's work; an upper bound for the generated tokens.

        Args:
            cost (`Cost`): `plan.cost`.
        Returns:
            `Price`: prompts are counted with the mean length that the server reported so far, or 256 tokens before
            the first answer; `total` is None where a price is missing.
        """
        used = self._usage
        usual = math.ceil(used.prompt_tokens / used.calls) if used.prompt_tokens else _USUAL_PROMPT_TOKENS
        asked, made = cost.lm_calls * usual, cost.tokens
        total = None
        if self.price_per_million_input is not None and self.price_per_million_output is not None:
            total = (asked * self.price_per_million_input + made * self.price_per_million_output) / 1e6
        return Price(calls=cost.lm_calls, prompt_tokens=asked, completion_tokens=made, total=total)

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int, temperature: float, seed: int) -> list[str]:
        """Ask for one answer a prompt.

        Args:
            prompts (`Sequence[str]`): public or already privatized texts.
            max_new_tokens (`int`): most tokens of an answer.
            temperature (`float`): what the server makes of it.
            seed (`int`): row r is asked with `public_seed(seed, r)`; whether the server heeds it is the server's.
        Returns:
            `list[str]`: one text a prompt, in order; "" where the server answered nothing three times.
        Raises:
            ConfigError: an argument is out of range, or there is no key for the inference providers.
            AssetError: the server refused, or some prompts got no answer within the retries. The answers that came
                are kept in memory for an equal call.
        """
        if not max_new_tokens >= 1:
            raise ConfigError(f"max_new_tokens is {max_new_tokens}; it is at least 1")
        if not 0 <= temperature < float("inf"):
            raise ConfigError(f"temperature is {temperature}; it is 0 or a positive number")
        if not prompts:
            return []
        asked = (tuple(prompts), max_new_tokens, temperature, seed)
        held, texts = self._unfinished
        texts = texts if held == asked else {}
        call = _Call(self, self._client(), prompts, max_new_tokens, temperature, seed, texts)
        try:
            call.run()
        finally:
            self._unfinished = (None, {}) if len(texts) == len(prompts) else (asked, texts)
        if len(texts) < len(prompts):
            raise AssetError(call.complaint())
        empty = sum(not text for text in texts.values())
        if empty:
            logger.warning("%d of %d answers of %s were empty", empty, len(prompts), self.id)
        return [texts[row] for row in range(len(prompts))]

    def count(self, usage: Any) -> None:
        """Add the usage that the server reported with an answer, as far as it is one."""
        read, written = (
            number if isinstance(number, int) else 0
            for number in (getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0))
        )
        with self._lock:
            self._usage = Usage(
                calls=self._usage.calls + 1,
                prompt_tokens=self._usage.prompt_tokens + read,
                completion_tokens=self._usage.completion_tokens + written,
            )

    def _client(self) -> Any:
        """Return a client of the server; it makes no request."""
        from huggingface_hub import InferenceClient, get_token

        if self.base_url is None:
            key = self._api_key or get_token() or ""
            if not key.startswith("hf_"):
                raise ConfigError(
                    "the inference providers need a token of the Hub, which begins with hf_: run hf auth login or "
                    "pass api_key=. For a provider's own key pass the provider's base_url= too."
                )
            return InferenceClient(api_key=key, timeout=self.timeout_seconds)
        # the client would send the Hub's token to any server: a header of None keeps it at home
        at_home = self.base_url.startswith("https://") and f".{self.host}".endswith(".huggingface.co")
        headers: Any = None if self._api_key or at_home else {"authorization": None}
        return InferenceClient(
            base_url=self.base_url, api_key=self._api_key, timeout=self.timeout_seconds, headers=headers
        )


@dataclass(frozen=True)
class _Failure:
    """A request without an answer: why, what the user can do, and whether and when it may be sent again."""

    reason: str
    way_out: str = "Check the server, or raise max_retries= or timeout_seconds=."
    passing: bool = True
    retry_after: float = 0.0


class _Call:
    """One call of `Endpoint.generate`: a thread a request, common pauses, and the first failure that did not pass.

    Args:
        endpoint (`Endpoint`): the settings.
        client (`InferenceClient`): what sends.
        prompts (`Sequence[str]`): one a row.
        max_new_tokens (`int`): most tokens of an answer.
        temperature (`float`): of sampling.
        seed (`int`): of the rows' seeds and of the jitter.
        texts (`dict[int, str]`): receives the answers by row; rows that are there already are not asked again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: Any,
        prompts: Sequence[str],
        max_new_tokens: int,
        temperature: float,
        seed: int,
        texts: dict[int, str],
    ) -> None:
        self.endpoint, self.client, self.prompts, self.texts = endpoint, client, prompts, texts
        self.max_new_tokens, self.temperature, self.seed = max_new_tokens, temperature, seed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._paused_until = 0.0
        self._failure: _Failure | None = None

    def run(self) -> None:
        """Ask for every row that is missing, until all are there or one is given up."""
        rows = [row for row in range(len(self.prompts)) if row not in self.texts]
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
        missing, total = len(self.prompts) - len(self.texts), len(self.prompts)
        failure = self._failure or _Failure("the call was stopped")
        return (
            f"{missing} of {total} prompts got no answer from {self.endpoint.host}: {failure.reason}. "
            f"{failure.way_out} A run resumes when it is called again with the same out=."
        )

    def _answer(self, row: int) -> None:
        """Ask for one row until it is answered, given up, or the call is over."""
        failures = empties = 0
        while not self._over():
            outcome = self._ask(row, empties)
            if isinstance(outcome, _Failure):
                failures += 1
                pause = self._pause(outcome, row, failures)
                if pause is None:
                    self._give_up(outcome, failures)
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

    def _pause(self, failure: _Failure, row: int, failures: int) -> float | None:
        """Return the seconds to wait before the next try, or None when there is none."""
        asked = failure.retry_after
        if not failure.passing or failures > self.endpoint.max_retries or asked > _LONGEST_PAUSE_SECONDS:
            return None
        with self._lock:  # a server that asks one row to wait means all of them
            self._paused_until = max(self._paused_until, time.monotonic() + asked)
        longest = min(_LONGEST_BACKOFF_SECONDS, self.endpoint.backoff_seconds * 2.0 ** min(failures - 1, 64))
        jitter = public_generator(self.seed, "back-off", row, failures).uniform(0.5, 1.0)
        return float(longest * jitter)

    def _give_up(self, failure: _Failure, failures: int) -> None:
        """End the call: a server that fails one prompt for good is taken to be down, and nothing more is sent."""
        reason = failure.reason
        if failure.retry_after > _LONGEST_PAUSE_SECONDS:
            reason += f" and a request to wait {failure.retry_after:.0f} s"
        elif failure.passing:
            reason += f" after {failures - 1} retries"
        with self._lock:
            if self._failure is None:
                self._failure = replace(failure, reason=reason)
        self._stop.set()

    def _ask(self, row: int, empties: int) -> "str | _Failure":
        """Send one request and return its text, or why there is none."""
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, OfflineModeIsEnabled

        seconds = self.endpoint.timeout_seconds
        try:
            reply = self._send(row, empties)
            content = reply.choices[0].message.content
        except InferenceTimeoutError:
            return _Failure(f"no answer within {seconds:g} s")
        except HfHubHTTPError as error:
            return _refusal(error.response.status_code, error.response.headers.get("Retry-After"))
        except OfflineModeIsEnabled:
            return _Failure("HF_HUB_OFFLINE is set, which holds for local servers too", "Unset it.", passing=False)
        except httpx2.HTTPError as error:
            return _Failure(f"the connection failed ({type(error).__name__})")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # what the client raises on a body that is no chat completion; its message may quote the body
            return _Failure("an answer that is no chat completion")
        if not (content is None or isinstance(content, str)):
            return _Failure("an answer that is no chat completion")
        self.endpoint.count(reply.usage)
        return _well_formed(content) if content and content.strip() else ""

    def _send(self, row: int, empties: int) -> Any:
        """Send a row's prompt; after an empty answer with another seed, or it would be empty again."""
        endpoint = self.endpoint
        system = endpoint.system_prompt
        messages = [] if system is None else [{"role": "system", "content": _well_formed(system)}]
        return self.client.chat_completion(
            [*messages, {"role": "user", "content": _well_formed(self.prompts[row])}],
            model=endpoint.model,
            max_tokens=self.max_new_tokens,
            temperature=self.temperature,
            seed=public_seed(self.seed, row, *((empties,) if empties else ())),
            extra_body=dict(endpoint.extra),
        )


def _refusal(status: int, retry_after: str | None) -> _Failure:
    """Return what an HTTP status means. The body is left unread: it may quote the prompt."""
    try:
        reason = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        reason = f"HTTP {status}"
    if status in _PASSING or status >= 500:
        return _Failure(reason, retry_after=_seconds(retry_after) if status in (429, 503) else 0.0)
    return _Failure(reason, _WAYS_OUT.get(status, "The server's log says more."), passing=False)


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header, which holds seconds or a date; 0 where it holds neither."""
    value = (retry_after or "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _well_formed(text: str) -> str:
    """Replace lone surrogates, which neither JSON over HTTP nor Parquet can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _host(base_url: str) -> str:
    """Return the host of a server's address, or refuse the address without repeating it: it may hold a secret."""
    try:
        parts = urlsplit(base_url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except (ValueError, AttributeError) as error:
        raise ConfigError("base_url is no address of a server; write e.g. http://127.0.0.1:8000/v1") from error
    if not valid or parts.hostname is None or parts.fragment:
        raise ConfigError("base_url is no address of a server; write e.g. http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"base_url of {parts.hostname} holds a user name; addresses are logged. Pass api_key=.")
    return parts.hostname


def _name(model: Any) -> str:
    if not isinstance(model, str) or not model.strip():
        raise ConfigError(f"model is of type {type(model).__name__} or blank; it is the model's name at the server")
    if "://" in model:
        raise ConfigError("model is an address; pass the model's name, and the address as base_url=")
    return model


def _key(api_key: Any) -> str | None:
    """Return a key that can stand in a header, or refuse it without repeating it."""
    if api_key is None:
        return None
    if not isinstance(api_key, str) or not api_key or not all("!" <= character <= "~" for character in api_key):
        raise ConfigError("api_key is empty, or holds white space or other characters that no HTTP header can hold")
    return api_key


def _fields(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the extra fields of a request, which JSON must be able to hold."""
    fields = dict(extra or {})
    for name in ("messages", "model", "stream"):
        if name in fields:
            raise ConfigError(f"extra= holds {name!r}, which the endpoint sets itself; leave it out")
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError("extra= holds a value that JSON cannot hold") from error
    return fields


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; it is a whole number from {low} to {high}")
    return value


def _number(name: str, value: Any, low: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < float("inf"):
        raise ConfigError(f"{name} is {value!r}; it is a number from {low:g}")
    return float(value)
