"""How much a client may ask for. Whatever is beyond is refused with a sentence; nothing is ever cut to fit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    body: int = 12 << 20  # bytes of a request; an image grows by a third in base64
    characters: int = 2000  # of a text
    pixels: int = 25_000_000  # of an image, before it is scaled down
    weights: int = 4_000_000  # attention weights in one answer
    drawn: int = 200_000  # of them in one picture of words, each of which is a square with a number
    seconds: float = 30.0  # from the last byte of a request to its answer, waiting included
    upload_seconds: float = 20.0  # for the body to arrive
    queue: int = 128  # requests that wait for the model
    per_client: int = 64  # requests of one address at a time
    batch: int = 32  # requests that the model answers together
    bodies: int = 256 << 20  # bytes of all requests at a time
    values: int = 200_000  # commas, colons and brackets of a body, counted before it is parsed: fields, numbers and whatever is in texts
    memory: int = 2 << 30  # bytes that a worker may take beyond the models
    guesses: int = 10  # wrong tokens of one address in `guess_seconds`
    guess_seconds: float = 60.0
