"""Many clients at once, and bad ones: nobody else suffers, and memory does not grow."""

import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from saccade.serve.limits import Limits

from .conftest import NOUNS, VERBS, running, serving

CLIENTS, SECONDS = 64, 30
SENTENCES = [f"The {noun} {verb} today." for noun in NOUNS for verb in VERBS]


def post(connection, path, question):
    connection.request("POST", f"/api/{path}", json.dumps(question), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def a_question(draw):
    text = draw.choice(SENTENCES)
    return draw.choice(
        [
            ("predict", {"text": text}),
            ("predict", {"text": text, "best": 3}),
            ("stream", {"text": text}),
            ("look", {"text": text, "target": "Les chats dorment."}),
            ("search", {"text": text, "best": 3}),
            ("alternatives", {"text": text, "target": "Les chats dorment.", "word": 1}),
            ("what-if", {"text": text, "target": "Les chats.", "interventions": [{"step": 1, "onto": 1}]}),
        ]
    )


def megabytes(process):
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) / 1024


@pytest.fixture
def process(word_run):
    """The command itself, in a process of its own, and its port."""
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not say how much memory a process holds (/proc)")
    command = [sys.executable, "-m", "saccade", "serve", str(word_run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        said = running.stderr.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", said)[1])
        yield running, port
        running.terminate()


@pytest.mark.slow
def test_sixty_four_clients_for_half_a_minute_meet_no_error_and_memory_stays_flat(process):
    running, port = process
    statuses, failures, memory = Counter(), [], []
    started = time.monotonic()

    def client(number):
        draw, connection = random.Random(number), http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < started + SECONDS:
            try:
                statuses[post(connection, *a_question(draw))[0]] += 1
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
                connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append((time.monotonic() - started, megabytes(running)))
        time.sleep(0.5)
    print(f"answers {dict(statuses)}, failures {len(failures)}, memory {memory[0]}, {memory[-1]}")
    assert not failures
    assert set(statuses) <= {200, 429, 503}
    assert statuses[200]
    settled = max(size for at, size in memory if at <= SECONDS / 2)
    assert max(size for _, size in memory) < 1.1 * settled
    assert post(http.client.HTTPConnection("127.0.0.1", port, timeout=30), "predict", {"text": SENTENCES[0]})[0] == 200


HEAD = b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BAD = {
    "half a body": HEAD + b"Content-Length: 500\r\n\r\n" + b'{"run": "wor',
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\n" + b'{"run"',
    "half a head": HEAD[:60],
    "nothing": b"",
    "garbage": bytes(range(256)) * 20,
    "an endless head": b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000,
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length that is none": HEAD + b"Content-Length: -5\r\n\r\n{}",
}


def closed(sock, seconds):
    """Whether the other side ends the connection in time."""
    sock.settimeout(seconds)
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_clients_that_hang_or_send_garbage_harm_nobody_and_are_shown_out(opened):
    with serving(opened, Limits(upload_seconds=1.0)) as address:
        port = int(address.rpartition(":")[2])
        hanging = []
        for content in [*BAD.values()] * 4:
            sock = socket.create_connection(("127.0.0.1", port), timeout=10)
            with suppress(OSError):  # it may be shown out while it is still talking
                sock.sendall(content)
            hanging.append(sock)
        question = {"run": "words", "text": "The cats sleep."}
        for _ in range(5):
            assert post(http.client.HTTPConnection("127.0.0.1", port, timeout=30), "predict", question)[0] == 200
        assert [closed(sock, 20) for sock in hanging] == [True] * len(hanging)
        assert post(http.client.HTTPConnection("127.0.0.1", port, timeout=30), "predict", question)[0] == 200
        for sock in hanging:
            sock.close()


def test_half_a_body_gets_a_sentence_in_time(opened):
    with serving(opened, Limits(upload_seconds=0.3)) as address:
        sock = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=20)
        sock.sendall(BAD["half a body"])
        answer = sock.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"did not arrive within 0.3 seconds" in answer
        sock.close()


def test_who_sends_too_much_is_told_so_and_not_cut_off(opened):
    with serving(opened, Limits(body=1_000_000)) as address:
        port = int(address.rpartition(":")[2])
        for size in (1_100_000, 5_000_000):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            status, said = post(connection, "predict", {"run": "words", "text": "a" * size})
            assert status == 413
            assert "1,000,000 bytes" in json.loads(said)["error"]


@pytest.mark.parametrize(("reads", "seconds"), [(False, 0.5), (True, 1.5)])  # patience for a busy machine's slow reader
def test_who_does_not_read_the_answer_is_shown_out_and_who_reads_slowly_is_not(reads, seconds):
    size = 30_000_000  # more than the buffers between the two hold

    async def large(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * size})

    with running(large, seconds) as address, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.connect(("127.0.0.1", int(address.rpartition(":")[2])))
        sock.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        received = 0
        for _ in range(8):
            time.sleep(0.25)
            for _ in range(40 if reads else 0):
                received += len(sock.recv(65536))
        sock.settimeout(10)
        with suppress(OSError):
            while part := sock.recv(1 << 20):
                received += len(part)
    assert (received > size) == reads
