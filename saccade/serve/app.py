"""The HTTP API and the page's files, as one ASGI application.

Answers come from workers (pool.py, worker.py), admission is the guard's (guard.py), what runs can do stands in served.py. A request never
names a file: the page's files are read once, at start, and found by their whole name.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from saccade import __version__
from saccade.errors import UserError
from saccade.serve.description import DescribedApp, request_body
from saccade.serve.guard import CLIENT, Access, Guard
from saccade.serve.keeper import Keeper
from saccade.serve.limits import Limits
from saccade.serve.messages import Error, Health, RunInfo, Runs
from saccade.serve.metrics import Metrics
from saccade.serve.pool import Pool
from saccade.serve.requests import parsed, several
from saccade.serve.served import Served, as_json
from saccade.serve.waiting import Busy, Job, Reply, Waiting
from saccade.tasks.task import Json

if TYPE_CHECKING:
    from importlib.abc import Traversable

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": meaning}
    for status, meaning in {
        400: "Not JSON, or cut short.",
        401: "The token is missing or wrong.",
        403: "Asked by a page of another site.",
        404: "No such run or page.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body is not called JSON.",
        422: "Something in the question is wrong.",
        429: "Too many requests of one client.",
        503: "Too many requests wait, or the answer took too long.",
    }.items()
}
_log = logging.getLogger("saccade.serve")

Endpoint = Callable[[Request], Awaitable[Response]]
Told = bytes | Exception | None
"""A message of a run that writes, what went wrong, or the end."""


class Answer(JSONResponse):
    def render(self, content: Any) -> bytes:
        return as_json(content)


class Asking:
    """From a request to the answer of the right run, through the workers."""

    def __init__(self, runs: Mapping[str, Served], limits: Limits, workers: int, metrics: Metrics):
        self.inputs = {name: tuple(run.run.task.input.fields.model_fields) for name, run in runs.items()}
        self.limits = limits
        self.waiting = Waiting(limits.queue, limits.batch)
        threads = max(1, (os.cpu_count() or 1) // workers)
        self.pool = Pool(Keeper(runs, limits, threads), self.waiting, workers, metrics.batches.observe)

    async def body(self, request: Request) -> Json:
        content = await request.body()
        body = await asyncio.to_thread(parsed, content, self.limits)
        if body is None:
            raise HTTPException(400, "the body is not JSON: see /docs for what to send")
        return body

    def run(self, body: Json) -> str:
        """The run that a request names."""
        name = body.get("run")
        if name is None and len(self.inputs) == 1:
            name = next(iter(self.inputs))
        names = ", ".join(self.inputs)
        if name is None:
            raise UserError(f"several runs are served: name one of them in `run` ({names})")
        if not isinstance(name, str) or name not in self.inputs:
            raise HTTPException(404, f"there is no run called {str(name)[:80]!r} here: choose one of {names}")
        return name

    async def answer(self, endpoint: str, body: Json, request: Request) -> Reply:
        """Questions to /api/predict that differ in their inputs alone may be answered together."""
        run, kind = self.run(body), None
        if endpoint == "predict":
            kind = (run, json.dumps({name: body[name] for name in sorted(body.keys() - {*self.inputs[run]})}))
        job = Job(run, endpoint, body, kind, request.scope[CLIENT])
        self.waiting.put(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.answer), self.limits.seconds)
        except asyncio.TimeoutError:
            raise Busy(f"there was no answer within {self.limits.seconds:g} seconds: ask for less at a time") from None
        finally:
            job.left = True

    async def lines(self, body: Json, request: Request) -> AsyncIterator[bytes]:
        """What a run tells while it writes, a line of JSON each. It stops when nobody listens any more.

        What goes wrong before the first line is raised, and so has a status of its own; after that it is a line.
        """
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Told]()

        def tell(message: Told) -> None:
            loop.call_soon_threadsafe(told.put_nowait, message)

        job = Job(self.run(body), "stream", body, None, request.scope[CLIENT], tell)

        def end(answer: "Future[Reply]") -> None:
            error = answer.exception()
            tell(error if isinstance(error, Exception) else None)

        job.answer.add_done_callback(end)
        self.waiting.put(job)
        begun, deadline = False, loop.time() + self.limits.seconds
        try:
            while (message := await _before(deadline - loop.time(), told)) is not None:
                if isinstance(message, Exception):
                    if not begun:
                        raise message
                    yield as_json({"error": _sentence(message)}) + b"\n"
                    return
                yield message + b"\n"
                begun = True
        finally:
            job.left = True


async def _before(seconds: float, told: "asyncio.Queue[Told]") -> Told:
    try:
        return await asyncio.wait_for(told.get(), max(seconds, 0.0))
    except asyncio.TimeoutError:
        return Busy("there was no answer in time: ask again in a moment")


def _sentence(error: Exception) -> str:
    if isinstance(error, UserError | Busy):
        return str(error)
    _log.error("a stream failed", exc_info=error)
    return "something went wrong here; the log says what"


def create_app(
    runs: Mapping[str, Served], limits: Limits | None = None, access: Access | None = None, workers: int = 1
) -> FastAPI:
    """The application. It asks the runs what they take, and keeps nothing of them: its workers open them anew."""
    limits, access = limits or Limits(), access or Access()
    metrics = Metrics()
    asking = Asking(runs, limits, workers, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(asking.pool.close)

    app = DescribedApp(
        title="Saccade",
        version=__version__,
        description="Predictions of trained runs, and what they attended to.",
        docs_url=None,  # FastAPI's own page loads its script from elsewhere; ours is static/docs.html
        redoc_url=None,
        lifespan=lifespan,
        responses=_REFUSALS,
        default_response_class=Answer,
    )
    _add_questions(app, asking, runs)
    _add_state(app, asking, metrics, [run.info() for run in runs.values()])
    pages = _add_page(app)
    _add_errors(app)
    paths = [route.path for route in app.routes if hasattr(route, "path") and "{" not in route.path]
    app.add_middleware(Guard, limits=limits, access=access, metrics=metrics, paths=[*paths, *pages])
    return app


def _add_questions(app: DescribedApp, asking: Asking, runs: Mapping[str, Served]) -> None:
    """The endpoints that every run answers, and those of the tasks that are served, each described by the bodies that runs take there."""

    async def predict(request: Request) -> Response:
        body = await asking.body(request)
        run = asking.run(body)
        bodies = several(body, asking.inputs[run], asking.limits)
        if bodies is None:
            return _sent(await asking.answer("predict", body, request))
        replies = await asyncio.gather(*(asking.answer("predict", one, request) for one in bodies))
        answers = b",".join(reply.content for reply in replies)
        return Response(b'{"run":%b,"answers":[%b]}' % (as_json(run), answers), media_type="application/json")

    async def stream(request: Request) -> StreamingResponse:
        lines = asking.lines(await asking.body(request), request)
        first = await anext(lines)  # what can be refused is refused with its own status

        async def all_lines() -> AsyncIterator[bytes]:
            yield first
            async for line in lines:
                yield line

        return StreamingResponse(all_lines(), media_type="application/x-ndjson")

    def other(name: str) -> Endpoint:
        async def answer(request: Request) -> Response:
            return _sent(await asking.answer(name, await asking.body(request), request))

        return answer

    endpoints: dict[str, tuple[str, Endpoint]] = {
        "predict": ("Answer an input, or a list of inputs", predict),
        "look": ("What was attended to: a view with its maps of weights", other("look")),
        "figure": ("The same as a picture (PNG, SVG or PDF)", other("figure")),
    }
    for run in runs.values():
        if run.streams is not None:
            endpoints.setdefault("stream", (run.streams.summary, stream))
    for run in runs.values():
        endpoints |= {name: (question.summary, other(name)) for name, question in run.questions.items()}
    for name, (summary, endpoint) in endpoints.items():
        body, definitions = request_body(name, runs)
        app.definitions = {**app.definitions, **definitions}
        app.add_api_route(
            f"/api/{name}", endpoint, methods=["POST"], summary=summary, openapi_extra={"requestBody": body}
        )


def _sent(reply: Reply) -> Response:
    return Response(reply.content, media_type=reply.media_type)


def _add_state(app: FastAPI, asking: Asking, metrics: Metrics, infos: list[RunInfo]) -> None:
    limits = {name: float(value) for name, value in asdict(asking.limits).items()}

    @app.get("/api/runs", summary="What can be asked, with examples")
    async def runs() -> Runs:
        return Runs(runs=infos, limits=limits)

    @app.get("/healthz", summary="Whether the server is up")
    async def healthz() -> Health:
        return Health(status="ok", runs=len(infos))

    @app.get("/metrics", summary="Counters, in the text form of Prometheus", response_class=Response)
    async def prometheus() -> Response:
        return Response(metrics.text(lambda: len(asking.waiting)), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> list[str]:
    """Every file of the page under its own name, read now: the page itself, the modules that draw views, and the tasks' own parts of it."""
    paths = []
    for path, file in _page_files():
        kind = _TYPES["." + file.name.rpartition(".")[2]]
        app.add_api_route(path, _file(file.read_bytes(), kind), methods=["GET", "HEAD"], include_in_schema=False)
        paths.append(path)
    return paths


def _page_files() -> "Iterator[tuple[str, Traversable]]":
    """`tasks/NAME/page.js` is the part of one task, /static/tasks/NAME.js; the modules beside it are what it imports."""
    pages = {"index.html": "/", "docs.html": "/docs"}
    for file in files("saccade.serve").joinpath("static").iterdir():
        yield pages.get(file.name, f"/static/{file.name}"), file
    for file in files("saccade.views").joinpath("page").iterdir():
        if file.name.endswith((".js", ".css")):
            yield f"/static/views/{file.name}", file
    for task in files("saccade.tasks").iterdir():
        for file in task.iterdir() if task.is_dir() else ():
            if file.name.endswith(".js"):
                place = task.name if file.name == "page.js" else f"{task.name}/{file.name[:-3]}"
                yield f"/static/tasks/{place}.js", file


def _file(content: bytes, kind: str) -> Callable[[], Any]:
    async def send() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return send


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(UserError)
    async def wrong(_: Request, error: UserError) -> Response:
        return Answer({"error": str(error)}, 422)

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> Response:
        return Answer({"error": str(error)}, 503, {"retry-after": "1"})

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: f"there is nothing at {request.url.path[:80]!r}: see /docs for what there is",
            405: f"{request.method} is not for {request.url.path[:80]!r}: see /docs",
            400: "the body is not JSON: see /docs for what to send",
        }
        standard = error.detail in ("Not Found", "Method Not Allowed") or error.status_code == 400
        sentence = sentences.get(error.status_code, error.detail) if standard else error.detail
        return Answer({"error": sentence}, error.status_code, error.headers)
