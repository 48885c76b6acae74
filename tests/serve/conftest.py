import asyncio
import io
import re
import socket
import threading
import time
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from saccade.serve.limits import Limits

NOUNS = {
    "cats": "chats",
    "dogs": "chiens",
    "books": "livres",
    "friends": "amis",
    "neighbours": "voisins",
    "farmers": "fermiers",
}
VERBS = {
    "sleep": "dorment",
    "read": "lisent",
    "arrive": "arrivent",
    "wait": "attendent",
    "fall": "tombent",
    "speak": "parlent",
}
WHEN = {"": "", " today": " aujourd'hui", " every day": " chaque jour", " often": " souvent"}
TRANSFORMER = [
    "data.vocab_size=300",
    "model.size=tiny",
    "model.layers=2",
    "model.width=32",
    "model.heads=2",
    "model.feed_forward=32",
]
TRANSFORMER += [
    "train.steps=60",
    "train.optimizer=adamw",
    "train.schedule=inverse-square-root",
    "model.initial=xavier",
    "train.warmup_steps=5",
    "train.learning_rate=0.01",
    "train.validate_every=60",
    "train.checkpoint_every=60",
]
TRANSFORMER += [
    "train.threads=1",
    "train.precision=fp32",
    "train.average=0",
    "decode.valid_sentences=3",
    "decode.max_length=40",
]
CAPTIONS = ["data.examples=60", "train.steps=30", "train.validate_every=30", "train.threads=1", "train.precision=fp32"]
CAPTIONS += ["train.warmup_steps=2", "train.learning_rate=0.01"]
CAPTIONS += ["model.encoder.width=16", "model.embedding=16", "model.hidden=16", "model.attention=8"]
CAPTIONS += ["decode.valid_sentences=4", "decode.max_length=8"]
PICTURES = [
    "train.steps=4",
    "train.validate_every=4",
    "train.threads=1",
    "train.precision=fp32",
    "model.width=16",
    "model.pooling=attention",
]


@pytest.fixture(scope="session")
def word_run(tmp_path_factory):
    """A Transformer that learned a few sentences, in pieces of words, for some seconds."""
    from saccade.runs.train import train

    folder = tmp_path_factory.mktemp("runs")
    pairs = [
        (f"The {noun} {verb}{when}.", f"Les {NOUNS[noun]} {VERBS[verb]}{WHEN[when]}.")
        for noun in NOUNS
        for verb in VERBS
        for when in WHEN
    ]
    (folder / "english").write_text("\n".join(source for source, _ in pairs), encoding="utf-8")
    (folder / "french").write_text("\n".join(target for _, target in pairs), encoding="utf-8")
    files = [f"data.source={folder / 'english'}", f"data.target={folder / 'french'}"]
    return train("translation", [*files, *TRANSFORMER], folder / "words")


@pytest.fixture(scope="session")
def picture_run(tmp_path_factory):
    from saccade.runs.train import train

    return train("digits-vit", PICTURES, tmp_path_factory.mktemp("runs") / "pictures")


@pytest.fixture(scope="session")
def caption_run(tmp_path_factory):
    """Show, Attend and Tell after a few steps on pictures of shapes."""
    from saccade.runs.train import train

    return train("shapes-soft", CAPTIONS, tmp_path_factory.mktemp("runs") / "captions")


@pytest.fixture(scope="session")
def opened(tiny_run, word_run, picture_run, caption_run):
    from saccade.serve.served import open_runs

    return open_runs([tiny_run, word_run, picture_run, caption_run], Limits())


@pytest.fixture(scope="session")
def naughty(tmp_path_factory):
    """A run that waits, fills the memory, dies or fails when a text asks it to."""
    from saccade.runs.train import train
    from saccade.serve.served import open_runs

    recipe = Path(__file__).parent.parent / "toys" / "naughty.yaml"
    settings = ["train.steps=2", "train.validate_every=2"]
    return open_runs([train(recipe, settings, tmp_path_factory.mktemp("runs") / "naughty")], Limits())


@pytest.fixture(scope="session")
def client(opened):
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    from fastapi.testclient import TestClient

    from saccade.serve.app import create_app

    with TestClient(create_app(opened), base_url="http://127.0.0.1", raise_server_exceptions=False) as asking:
        yield asking


@contextmanager
def serving(runs, limits=None, workers=1, access=None):
    """A real server on a free port of this machine; its address."""
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    from saccade.serve.app import create_app

    limits = limits or Limits()
    with running(create_app(runs, limits, access, workers), limits.upload_seconds) as address:
        yield address


@contextmanager
def running(app, seconds):
    """Any application, served as ours is."""
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'saccade[serve]')")
    from saccade.serve.patience import Patience

    patience = Patience(seconds)
    config = uvicorn.Config(
        patience.application(app), http=patience.protocol, log_level="error", access_log=False, proxy_headers=False
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="session")
def address(opened):
    with serving(opened) as found:
        yield found


def picture(rows: int = 8, columns: int = 8, kind: str = "PNG") -> str:
    written = io.BytesIO()
    Image.linear_gradient("L").resize((columns, rows)).save(written, kind)
    return b64encode(written.getvalue()).decode()


def require_proc():
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("this system does not say what processes there are and how much memory they hold (/proc)")


def below(process):
    """A process and all that it started."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(found for child in children for found in below(int(child)))]


def megabytes(process):
    """Of a process and all that it started; what they share counts once."""
    sizes = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in below(process)]
    return sum(int(re.search(r"Pss:\s+(\d+) kB", size)[1]) for size in sizes) / 1024
