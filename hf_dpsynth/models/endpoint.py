"""Language models behind an OpenAI-compatible HTTP server, or at an inference provider of the Hub.

Prompts are public or already privatized, and still no error, log or repr holds a prompt, a text or a key: failures are
told by status and number alone.
Source of the interface: the chat completions of https://platform.openai.com/docs/api-reference/chat, as
`huggingface_hub.InferenceClient` sends them.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.models.base import check_sampling
from hf_dpsynth.models.chat_completion import Asked, Call, Usage

KEY_VARIABLE = "HF_DPSYNTH_ENDPOINT_KEY"
_PROVIDERS = "router.huggingface.co"
_MOST_CONNECTIONS = 100  # of the HTTP client that huggingface_hub shares in a process
_USUAL_PROMPT_TOKENS = 256

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
        if not isinstance(system_prompt, str | None):
            raise ConfigError(f"system_prompt is of type {type(system_prompt).__name__}; it is a text or None")
        self.system_prompt = system_prompt
        self.extra = _fields(extra)
        self.price_per_million_input = price_per_million_input
        self.price_per_million_output = price_per_million_output
        for name in ("price_per_million_input", "price_per_million_output"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), 0.0)
        self._api_key = _key(api_key)
        self._usage = Usage()
        self._unfinished: tuple[Asked | None, dict[int, str]] = (None, {})

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
        """Return the public name: the model and the server's host; of a model that is a path its last part."""
        name = re.split(r"[/\\]", self.model.rstrip("/\\"))[-1] if re.match(r"[/~.\\]|\w:", self.model) else self.model
        return f"{name}@{self.host}"

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
        check_sampling(max_new_tokens, temperature)
        if not prompts:
            return []
        asked = Asked(tuple(prompts), max_new_tokens, temperature, seed)
        held, kept = self._unfinished
        texts = kept if held == asked else {}
        call = Call(self, self._client(), asked, texts, self._usage)
        try:
            call.run()
        finally:
            self._usage = call.usage
            self._unfinished = (None, {}) if len(texts) == len(prompts) else (asked, texts)
        if len(texts) < len(prompts):
            raise AssetError(call.complaint())
        empty = sum(not text for text in texts.values())
        if empty:
            logger.warning("%d of %d answers of %s were empty", empty, len(prompts), self.id)
        return [texts[row] for row in range(len(prompts))]

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


def _host(base_url: Any) -> str:
    """Return the host of a server's address, or refuse the address without repeating it: it may hold a secret."""
    parts = _parts(base_url)
    if parts is None or parts.fragment:
        raise ConfigError("base_url is no address of a server; write e.g. http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"base_url of {parts.hostname} holds a user name; addresses are logged. Pass api_key=.")
    return str(parts.hostname)


def _parts(base_url: Any) -> SplitResult | None:
    """Return the parts of an HTTP address, or None. Without an exception, which would quote the address."""
    try:
        parts = urlsplit(base_url)
        valid = isinstance(base_url, str) and parts.scheme in ("http", "https") and (parts.port or 1) > 0
    except (ValueError, AttributeError):
        return None
    return parts if valid and parts.hostname and base_url.isprintable() else None


def _name(model: Any) -> str:
    if not isinstance(model, str) or not model.strip() or not model.isprintable():
        raise ConfigError(f"model is {model!r}; it is the model's name at the server")
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
