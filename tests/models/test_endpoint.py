"""An endpoint over real HTTP: what may pass is retried, the rest is told in one line, nothing private is sent."""

import email.utils
import json
import logging
import pathlib
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager

import huggingface_hub
import pytest

from hf_dpsynth import models
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models.endpoint import Endpoint, Price, Usage
from hf_dpsynth.plans import Cost
from hf_dpsynth.privacy.keys import public_seed
from tests.models.endpoint_server import Server, words
from tests.stubs import CANARY, StubEmbedder, reviews, synth

KEY = "sk-canary-of-a-key"
PROMPT = "a prompt nobody may print"
NOTHING_LISTENS = "http://127.0.0.1:9/v1"
PATIENCE = defaultdict(lambda: 60.0, silent=1.5)
"""Seconds until the client hangs up: only a silent server is hung up on, however busy the machine is."""


@pytest.fixture(autouse=True)
def no_token_and_no_open_connection(monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no-token")
    yield
    huggingface_hub.close_session()


@contextmanager
def serving(*faults, **settings):
    """A server in threads of this process, which shows what it received."""
    server = Server(faults=faults, **settings)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        huggingface_hub.close_session()  # or the server's threads would wait for the next request
        server.shutdown()
        thread.join()
        server.server_close()


def endpoint(server, **settings):
    return Endpoint("tiny", server.url, **{"backoff_seconds": 0.01, "timeout_seconds": 5.0} | settings)


def ask(generator, prompts=(PROMPT,), seed=3):
    return generator.generate(prompts, max_new_tokens=9, temperature=0.7, seed=seed)


def refused(generator, prompts=(PROMPT,)):
    """The one line of the error, which holds no secret and leads to no exception that does."""
    with pytest.raises(AssetError) as caught:
        ask(generator, prompts)
    line = str(caught.value)
    assert "\n" not in line and "127.0.0.1" in line
    for secret in (KEY, PROMPT):
        assert secret not in line and secret not in repr(generator)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return line


def test_answers_keep_the_order_of_the_prompts_and_few_are_in_flight():
    with serving(delay=0.02) as server:
        texts = ask(endpoint(server, max_concurrency=4), [f"echo {number}" for number in range(40)])
    assert texts == [str(number) for number in range(40)]
    assert server.most_in_flight == 4
    assert set(server.paths) == {"/v1/chat/completions"}


def test_each_row_is_asked_with_its_own_public_seed():
    with serving() as server:
        first = ask(endpoint(server), ["one", "two", "three"])
        again = ask(endpoint(server, max_concurrency=1), ["one", "two", "three"])
        other = ask(endpoint(server), ["one", "two", "three"], seed=4)
    assert first == again == [words(public_seed(3, row)) for row in range(3)]
    assert other != first
    body = server.bodies[3]
    assert body == {
        "model": "tiny", "messages": [{"role": "user", "content": "one"}], "max_tokens": 9, "temperature": 0.7,
        "seed": public_seed(3, 0), "stream": False,
    }  # fmt: skip


def test_a_system_prompt_and_more_fields_are_sent():
    with serving() as server:
        generator = endpoint(server, system_prompt="Be brief.", extra={"top_p": 0.9, "seed": None})
        server.faults = [("content", "yes")]
        assert ask(generator, ["go \ud800"]) == ["yes"]
    (body,) = server.bodies
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go ?"}]
    assert body["top_p"] == 0.9 and "seed" not in body


def test_the_key_goes_to_the_server_and_the_token_of_the_hub_does_not(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_canaryofatoken")
    with serving() as server:
        ask(endpoint(server, api_key=KEY))
        ask(endpoint(server))
    with_key, without = server.headers
    assert with_key["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in without and "hf_canary" not in json.dumps(without)


def test_usage_is_what_the_server_reported():
    with serving(("raw", b'{"choices": [{"message": {"content": "no usage"}}]}'), ("status", 500)) as server:
        generator = endpoint(server, max_concurrency=1)
        assert generator.usage == Usage()
        ask(generator, ["one", "two", "three"])
    assert generator.usage == Usage(calls=3, prompt_tokens=14, completion_tokens=6)


@pytest.mark.parametrize(
    "fault",
    [
        ("status", 500),
        ("status", 502, (), ["an error in an unknown form"]),
        ("status", 408),
        ("cut",),
        ("reset",),
        ("silent",),
        ("raw", b"<html>no JSON</html>"),
        ("raw", b"\xff\xfe"),
        ("raw", b"[]"),
        ("raw", b"{}"),
        ("raw", b'{"choices": []}'),
        ("raw", b'{"choices": [{"message": {"content": 7}}]}'),
    ],
    ids=lambda fault: " ".join(map(str, fault)),
)
def test_a_failure_that_passes_is_retried_for_its_row_alone(fault):
    with serving(fault, fault) as server:
        generator = endpoint(server, timeout_seconds=PATIENCE[fault[0]], max_concurrency=2)
        assert ask(generator, ["echo 0", "echo 1", "echo 2"]) == ["0", "1", "2"]
    assert len(server.bodies) == 5


@pytest.mark.parametrize(("status", "as_date"), [(429, False), (503, True)])
def test_retry_after_pauses_all_requests(status, as_date):
    wait = email.utils.formatdate(time.time() + 2, usegmt=True) if as_date else "1"
    with serving(("status", status, [("Retry-After", wait)])) as server:
        started = time.monotonic()
        assert ask(endpoint(server, max_concurrency=1), ["echo 0", "echo 1"]) == ["0", "1"]
        assert time.monotonic() - started > 0.9
    assert len(server.bodies) == 3


def test_a_rate_limit_that_lets_other_rows_pass_is_no_outage():
    limit = ("status", 429)
    with serving(*[limit, limit, limit, ("text",)] * 6) as server:
        texts = ask(endpoint(server, max_concurrency=4, max_retries=6), [f"echo {row}" for row in range(6)])
    assert texts == [str(row) for row in range(6)]


def test_a_pause_that_is_too_long_ends_the_call():
    with serving(("status", 429, [("Retry-After", "86400")])) as server:
        line = refused(endpoint(server))
    assert "1 of 1 prompts got no answer" in line and "429" in line and "86400 s" in line
    assert len(server.bodies) == 1


def test_an_empty_answer_is_asked_again_twice_with_other_seeds(caplog):
    empty = [("content", content) for content in ("", None, " \n")]
    with serving(*empty, ("content", ""), ("content", "third time lucky")) as server:
        assert ask(endpoint(server, max_concurrency=1), ["one", "two"]) == ["", "third time lucky"]
    assert [body["seed"] for body in server.bodies] == [
        public_seed(3, 0), public_seed(3, 0, 1), public_seed(3, 0, 2), public_seed(3, 1), public_seed(3, 1, 1)
    ]  # fmt: skip
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "1 of 2 answers of tiny@127.0.0.1 were empty"
    ]


@pytest.mark.parametrize(
    ("status", "way_out"), [(400, "extra="), (401, "api_key="), (403, "api_key="), (404, "base_url="), (413, "log")]
)
def test_a_refusal_is_told_at_once(status, way_out, caplog):
    caplog.set_level(logging.DEBUG)
    with serving(*[("status", status)] * 9) as server:
        line = refused(endpoint(server, api_key=KEY, max_concurrency=1), [PROMPT] * 9)
    assert f"9 of 9 prompts got no answer from 127.0.0.1: HTTP {status} " in line and way_out in line
    assert len(server.bodies) == 1
    assert KEY not in caplog.text and PROMPT not in caplog.text


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (("status", 500), "HTTP 500 Internal Server Error"),
        (("status", 599), "HTTP 599"),
        (("silent",), "no answer within 1.5 s"),
        (("raw", PROMPT.encode()), "an answer that is no chat completion"),
        (("cut",), "the connection failed (RemoteProtocolError)"),
    ],
)
def test_an_error_says_how_many_prompts_have_no_answer(fault, reason):
    with serving(("text",), ("text",), *[fault] * 9) as server:
        options = {"max_concurrency": 1, "max_retries": 1, "timeout_seconds": PATIENCE[fault[0]]}
        line = refused(endpoint(server, **options, api_key=KEY), [PROMPT] * 5)
    assert f"3 of 5 prompts got no answer from 127.0.0.1: {reason}, and max_retries=1 is used up." in line
    assert "same out=" in line
    assert len(server.bodies) == 4


def test_nobody_listening_is_told_in_one_line():
    generator = Endpoint("tiny", NOTHING_LISTENS, max_retries=2, backoff_seconds=0.01)
    assert "40 of 40 prompts" in refused(generator, [PROMPT] * 40)


def test_offline_mode_is_named(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with serving() as server:
        assert "HF_HUB_OFFLINE" in refused(endpoint(server))
    assert server.bodies == []
    with pytest.raises(AssetError, match=r"1 of 1 prompts got no answer from router\.huggingface\.co: HF_HUB_OFFLINE"):
        ask(Endpoint("org/name", api_key="hf_canary"))


def test_answers_of_a_failed_call_are_kept_for_an_equal_one():
    prompts = [f"echo {row}" for row in range(6)]
    with serving(*[("text",)] * 4, ("status", 401)) as server:
        generator = endpoint(server, max_concurrency=1)
        refused(generator, prompts)
        assert ask(generator, prompts) == [str(row) for row in range(6)]
        assert len(server.bodies) == 5 + 2
        ask(generator, prompts)
        assert len(server.bodies) == 5 + 2 + 6


def test_an_interrupted_call_keeps_its_answers_and_stops_asking(monkeypatch):
    class Bar:
        def update(self):
            raise KeyboardInterrupt

        def close(self):
            pass

    monkeypatch.setattr("hf_dpsynth.models.chat_completion.progress_bar", lambda **options: Bar())
    with serving(("status", 500), delay=0.01) as server:
        generator = endpoint(server, max_concurrency=2, backoff_seconds=60.0)
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask(generator, ["echo 1"] * 50)
        assert time.monotonic() - started < 5, "a row that waits to be retried is not waited for"
        assert len(server.bodies) < 10
        monkeypatch.undo()
        assert ask(generator, ["echo 1"] * 50) == ["1"] * 50
    assert len(server.bodies) == 50 + 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": " "}, "model"),
        ({"model": None}, "model"),
        ({"model": "http://127.0.0.1:8000/v1"}, "base_url="),
        ({"base_url": "127.0.0.1:8000"}, "base_url"),
        ({"base_url": "ftp://host/v1"}, "base_url"),
        ({"base_url": "http://host:99999/v1"}, "base_url"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "api_key="),
        ({"base_url": f"http://me:{KEY}"}, "base_url"),
        ({"base_url": "http://host/v1#llama"}, "base_url"),
        ({"model": "two\nlines"}, "model"),
        ({"base_url": 7}, "base_url"),
        ({"api_key": f"{KEY}\n"}, "api_key"),
        ({"api_key": ""}, "api_key"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": 101}, "max_concurrency"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"max_retries": -1}, "max_retries"),
        ({"backoff_seconds": float("inf")}, "backoff_seconds"),
        ({"extra": {"messages": []}}, "messages"),
        ({"extra": {"top_p": {1}}}, "extra="),
        ({"system_prompt": 7}, "system_prompt"),
        ({"price_per_million_input": -1}, "price_per_million_input"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_sent(settings, named):
    with pytest.raises(ConfigError, match=named) as caught:
        Endpoint(**{"model": "tiny", "base_url": NOTHING_LISTENS} | settings)
    assert KEY not in str(caught.value) and KEY not in str(caught.value.__cause__) + str(caught.value.__context__)


def test_wrong_arguments_of_a_call_are_refused_and_no_prompt_asks_nothing():
    generator = Endpoint("tiny", NOTHING_LISTENS)
    for wrong in ({"max_new_tokens": 0}, {"temperature": float("nan")}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            generator.generate(["one"], **{"max_new_tokens": 1, "temperature": 1.0, "seed": 0} | wrong)
    assert ask(generator, []) == []


def test_the_inference_providers_need_a_token_of_the_hub():
    for key in (None, KEY):
        with pytest.raises(ConfigError, match="hf auth login") as caught:
            ask(Endpoint("org/name", api_key=key))
        assert KEY not in str(caught.value)
    assert Endpoint("org/name").id == "org/name@router.huggingface.co"


def test_an_address_with_a_model_is_a_generator(monkeypatch):
    monkeypatch.setenv("HF_DPSYNTH_ENDPOINT_KEY", KEY)
    with serving() as server:
        generator = models.load_generator(f"{server.url}?version=1#org/tiny:fast")
        assert isinstance(generator, models.base.TextGenerator)
        ask(generator)
    assert generator.id == "org/tiny:fast@127.0.0.1"
    assert server.bodies[0]["model"] == "org/tiny:fast"
    assert server.paths == ["/v1/chat/completions?version=1"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    with pytest.raises(ConfigError, match="behind a '#'"):
        models.load_generator("http://127.0.0.1:8000/v1")
    assert models.load_generator(generator) is generator


def test_a_price_is_estimated_from_a_plan_and_from_what_was_used():
    cost = Cost(lm_calls=1000, tokens=64_000)
    generator = Endpoint("tiny", NOTHING_LISTENS, price_per_million_input=1.0, price_per_million_output=2.0)
    assert generator.price(cost) == Price(calls=1000, prompt_tokens=256_000, completion_tokens=64_000, total=0.384)
    assert Endpoint("tiny", NOTHING_LISTENS).price(cost).total is None
    with serving() as server:
        used = endpoint(server)
        ask(used)
        assert used.price(cost).prompt_tokens == 7000


@contextmanager
def process(log, port=0, die_after=0):
    """A server of its own, which dies at a request."""
    script = pathlib.Path(__file__).with_name("endpoint_server.py")
    command = [sys.executable, str(script), str(port), str(log), str(die_after)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield int(server.stdout.readline())
        finally:
            huggingface_hub.close_session()
            server.kill()


def populations(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "populations").glob("*.jsonl"))}


@pytest.mark.parametrize("die_after", [270, 420])
def test_a_server_that_dies_half_way_costs_no_text_and_no_charge(tmp_path, die_after):
    run, log = tmp_path / "run", tmp_path / "received.jsonl"

    def job(port):
        generator = Endpoint("tiny", f"http://127.0.0.1:{port}/v1", max_retries=1, backoff_seconds=0.01)
        params = {"iterations": 2, "variations": 3}
        return synth(reviews(), out=run, generator=generator, embedder=StubEmbedder(), num_rows=300, params=params)

    with process(log, die_after=die_after) as port, pytest.raises(AssetError, match="prompts got no answer"):
        job(port)
    plan, made = (run / "plan.json").read_bytes(), populations(run)
    assert len(made["population-000.jsonl"].splitlines()) == (256 if die_after == 270 else 300)
    with process(log, port=port) as port:
        synthetic = job(port)
    assert (run / "plan.json").read_bytes() == plan and json.loads(plan)["model_ids"]["generator"] == "tiny@127.0.0.1"
    assert [charge.key for charge in synthetic.privacy.charges] == ["label-counts", "votes-001", "votes-002"]
    assert synthetic.privacy.notes == () and len(synthetic) == 300
    after = populations(run)
    assert all(after[name].startswith(texts) for name, texts in made.items())
    received = log.read_bytes()
    assert len(received.splitlines()) > 700 and CANARY.encode() not in received
