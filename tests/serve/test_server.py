import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from saccade.errors import ConfigError, UserError
from saccade.serve.server import Opening, check_certificate, default_workers, is_loopback, serve, token_for

from .conftest import below, require_proc


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_only_this_machine_is_local(host, local):
    assert is_loopback(host) is local


def test_a_token_is_made_up_where_others_can_ask_unless_one_is_given_or_none_wanted():
    made = [token_for(Opening(host="0.0.0.0")), token_for(Opening(behind_proxy=True))]
    assert all(re.fullmatch(r"[\w-]{32}", token) for token in made)
    assert made[0] != made[1]
    assert token_for(Opening(host="0.0.0.0", token="long-enough")) == "long-enough"
    assert token_for(Opening(host="0.0.0.0", public=True)) is None
    assert token_for(Opening()) is None


def test_tokens_that_are_easily_guessed_or_contradict_are_refused():
    with pytest.raises(ConfigError, match="choose one of them"):
        token_for(Opening(host="0.0.0.0", token="long-enough", public=True))
    for token in ("short", "with a space", "schlüssel"):
        with pytest.raises(ConfigError, match="8 or more"):
            token_for(Opening(token=token))


def test_a_port_in_use_is_said_before_any_model_is_read(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose another --port"):
            serve([tmp_path / "no-run"], Opening(port=taken.getsockname()[1]))


def test_there_are_two_workers_at_least_and_eight_at_most():
    assert [default_workers(processors) for processors in (1, 2, 4, 8, 64)] == [2, 2, 2, 4, 8]


@contextmanager
def command(run, *options, environment=None):
    """The command itself, and the address it says."""
    words = [sys.executable, "-m", "saccade", "serve", str(run), "--port", "0", "--workers", "1", *options]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as running:
        try:
            said = running.stderr.readline()
            yield re.search(r"https?://\S+", said)[0]
        finally:
            running.terminate()


def status(address, **options):
    try:
        with urlopen(address, timeout=60, **options) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


def certificate(folder):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on this machine to make a certificate")
    make = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    make += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_behind_a_proxy_with_a_certificate_it_is_https_and_its_address_has_the_token(tiny_run, tmp_path):
    made, key = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(made))
    with command(tiny_run, "--behind-proxy", "--certificate", str(made), "--key", str(key)) as address:
        base, _, token = address.partition("?token=")
        assert base.startswith("https://127.0.0.1:")
        asked = {path: status(f"{base}{path}", context=trusted) for path in ("", "healthz", "api/runs", "metrics")}
        assert asked == {"": 200, "healthz": 200, "api/runs": 401, "metrics": 401}
        known = Request(f"{base}api/runs", headers={"Authorization": f"Bearer {token}"})
        assert status(known, context=trusted) == 200
        plain = socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2].strip("/"))), timeout=20)
        with plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")


def test_a_certificate_that_cannot_be_used_is_said_before_any_model_is_read(tmp_path):
    made, key = certificate(tmp_path)
    check_certificate(made, key)
    check_certificate(None, None)
    with pytest.raises(ConfigError, match="TLS needs --key, too"):
        serve([tmp_path / "no-run"], Opening(certificate=made))
    with pytest.raises(ConfigError, match="TLS needs --certificate, too"):
        check_certificate(None, key)
    with pytest.raises(UserError, match=r"nothing\.pem is no file"):
        check_certificate(made, tmp_path / "nothing.pem")
    (tmp_path / "other").mkdir()
    _, other = certificate(tmp_path / "other")
    with pytest.raises(UserError, match="no certificate with its key"):
        check_certificate(made, other)
    locked = tmp_path / "locked.pem"
    encrypt = ["openssl", "ec", "-in", key, "-out", locked, "-aes128", "-passout", "pass:secret"]
    subprocess.run(encrypt, check=True, capture_output=True)
    with pytest.raises(UserError, match="PEM files without a password"):
        check_certificate(made, locked)


def test_what_the_help_says_of_workers_and_proxies(saccade, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", saccade("serve", "--help").stdout).split())
    assert "for every two processors one" in said
    assert "believe the last address in X-Forwarded-For" in said
    assert "made up and printed where others can ask" in said


def test_a_server_that_is_killed_leaves_no_process_behind(tiny_run):
    require_proc()
    words = [sys.executable, "-m", "saccade", "serve", str(tiny_run), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as running:
        address = re.search(r"http://\S+", running.stderr.readline())[0]
        assert status(f"{address}healthz") == 200
        deadline = time.monotonic() + 60
        while len(processes := below(running.pid)) < 5 and time.monotonic() < deadline:  # a keeper, two workers, ...
            time.sleep(0.05)
        assert len(processes) >= 5
        os.kill(running.pid, signal.SIGKILL)
    while any(Path(f"/proc/{process}").exists() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [process for process in processes if Path(f"/proc/{process}").exists()]
