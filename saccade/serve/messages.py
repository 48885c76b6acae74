"""What is asked and answered over HTTP. Unknown names and wrong types are refused; every value has its range here."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())


class Question(Message):
    run: str | None = Field(None, description="a name from /api/runs; may be left out where there is only one")
    text: str | None = Field(None, description="a sentence, for runs that read sentences")
    image: str | None = Field(
        None, description="a picture file (PNG, JPEG, WebP, ...) in base64, or as a data: address"
    )


class PredictQuestion(Question):
    best: int = Field(1, ge=1, le=20, description="how many answers")
    prefix: str = Field("", description="words that the translation must begin with")
    search: Literal["greedy", "beam", "sample"] | None = None
    beam: int | None = Field(None, ge=1, le=20)
    length_penalty: float | None = Field(None, ge=-5, le=5)
    temperature: float | None = Field(None, ge=0.01, le=100)
    top_k: int | None = Field(None, ge=1, le=100_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=2**31)


class StreamQuestion(Message):
    run: str | None = None
    text: str
    prefix: str = ""


class LookQuestion(Question):
    target: str | None = Field(None, description="a given translation instead of the model's own")
    words: bool = Field(True, description="whole words, or the model's own tokens")
    only: str = Field("*", max_length=200, description="attention modules by pattern, such as decoder.*cross*")
    pixel: tuple[int, int] | None = Field(None, description="pictures: row and column of the pixel that looks")


class FigureQuestion(LookQuestion):
    format: Literal["png", "svg"] = "png"
    head: int | None = Field(None, ge=0, le=1000, description="one head; all of them unless given")


class AlternativesQuestion(Message):
    run: str | None = None
    text: str
    target: str
    word: int = Field(
        ge=0, le=100_000, description="which word of the target, counted from 0; the one after the last is its end"
    )
    best: int = Field(8, ge=1, le=20)


class CalculationQuestion(Message):
    run: str | None = None
    text: str
    target: str
    map: str = Field(max_length=200, description="the name of an attention module, as /api/look gives it")
    head: int = Field(0, ge=0, le=1000)
    query: int = Field(ge=0, le=100_000, description="which word or token looks")
    key: int = Field(ge=0, le=100_000, description="which one is looked at")
    words: bool = Field(True, description="whether query and key count words or the model's own tokens")


class SearchQuestion(Message):
    run: str | None = None
    text: str
    prefix: str = Field(
        "", description="words that the translation must begin with, such as a branch that was given up"
    )
    beam: int | None = Field(None, ge=1, le=12, description="how many beginnings are followed side by side")
    best: int = Field(1, ge=1, le=12, description="how many translations the search is for")
    length_penalty: float | None = Field(None, ge=-5, le=5)


class Turn(Message):
    """While one word is begun, all attention lies on another one."""

    step: int = Field(ge=0, le=100_000, description="which word of the target is begun, counted from 0")
    onto: int = Field(ge=0, le=100_000, description="which word of the text is looked at, counted from 0")
    map: str | None = Field(
        None, max_length=200, description="one attention to the source by its name; all unless given"
    )
    head: int | None = Field(None, ge=0, le=1000, description="one head; all unless given")


class Cut(Message):
    """One head passes nothing on."""

    map: str = Field(max_length=200, description="the name of an attention module, as /api/look gives it")
    head: int = Field(ge=0, le=1000)


class WhatIfQuestion(Message):
    run: str | None = None
    text: str
    target: str | None = Field(None, description="the translation to start from; the model's own unless given")
    words: bool = Field(True, description="whether steps count words or the model's own tokens")
    interventions: list[Turn | Cut] = Field(
        max_length=50, description="in the order in which they were made; the words before the last one's step stay"
    )


class Error(BaseModel):
    error: str = Field(description="one sentence: what was given, what is allowed, what to do")


class RunInfo(BaseModel):
    name: str
    task: str
    reads: Literal["text", "image"]
    model: str
    description: str
    attends: bool
    examples: list[str] = Field(description="sentences, or pictures as data: addresses")
    decode: dict[str, Any] = Field(description="settings of the search, as trained")


class Runs(BaseModel):
    runs: list[RunInfo]
    limits: dict[str, float]


class Health(BaseModel):
    status: Literal["ok"]
    runs: int
