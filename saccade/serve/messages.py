"""What the server says of itself over HTTP."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Error(BaseModel):
    error: str = Field(description="one sentence: what was given, what is allowed, what to do")


class RunInfo(BaseModel):
    name: str
    task: str
    reads: str = Field(description="what it reads: text, image, ...")
    model: str
    description: str
    attends: bool = Field(description="whether there is attention to look at")
    asks: list[str] = Field(description="what may be asked: the endpoints under /api that it answers")
    page: bool = Field(description="whether its task has a part of the page of its own")
    examples: list[str] = Field(description="inputs to try: sentences, or pictures as data: addresses")
    decode: dict[str, Any] = Field(description="settings of the search, as trained")


class Runs(BaseModel):
    runs: list[RunInfo]
    limits: dict[str, float]


class Health(BaseModel):
    status: Literal["ok"]
    runs: int
