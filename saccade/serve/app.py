"""The HTTP API and the page's files, as one ASGI application.

Answers come from the worker's thread (worker.py), admission is the guard's (guard.py), what runs can do stands in served.py. A request
never names a file: the page's files are read once, at start, and found by their whole name.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
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
from saccade.serve.guard import Access, Guard
from saccade.serve.limits import Limits
from saccade.serve.messages import Error, Health, Runs
from saccade.serve.metrics import Metrics
from saccade.serve.requests import Question, require_few_keys, several
from saccade.serve.served import Served
from saccade.serve.worker import Busy, Worker
from saccade.tasks.task import Json

if TYPE_CHECKING:
    from importlib.abc import Traversable

_PICTURES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}
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

Told = Json | Exception | None
"""A message of a run that writes, what went wrong, or the end."""


class Answer(JSONResponse):
    """JSON that can always be sent: half a surrogate pair in a client's text becomes a question mark, not a failure."""

    def render(self, content: Any) -> bytes:
        return as_json(content)


class Stopped(Exception):
    """Nobody listens any more."""


class Asking:
    """From a request to the answer of the right run, through the worker."""

    def __init__(self, runs: Mapping[str, Served], limits: Limits, metrics: Metrics):
        self.runs = runs
        self.limits = limits
        self.worker = Worker(limits.queue, limits.batch, metrics.batches.observe)

    async def body(self, request: Request) -> dict[str, Any]:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise HTTPException(400, "the body is not JSON: see /docs for what to send") from None
        if not isinstance(body, dict):
            raise UserError('the body must be a JSON object such as {"text": "..."}: see /docs for what to send')
        require_few_keys(body)
        return body

    def run(self, body: Mapping[str, Any]) -> Served:
        """The run that a request names."""
        name = body.get("run")
        if name is None and len(self.runs) == 1:
            name = next(iter(self.runs))
        names = ", ".join(self.runs)
        if name is None:
            raise UserError(f"several runs are served: name one of them in `run` ({names})")
        if not isinstance(name, str) or name not in self.runs:
            raise HTTPException(404, f"there is no run called {str(name)[:80]!r} here: choose one of {names}")
        return self.runs[name]

    async def one(self, work: Callable[[Any], Any], question: Any) -> Any:
        """An answer on its own."""
        return await self.together(lambda questions: [work(one) for one in questions], question, None)

    async def together(
        self, work: Callable[[Sequence[Any]], Sequence[Any]], question: Any, kind: tuple[Any, ...] | None
    ) -> Any:
        """An answer in one batch with whatever of the same kind waits."""
        future = self.worker.submit(work, question, self.limits.seconds, kind)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.limits.seconds)
        except asyncio.TimeoutError:
            raise Busy(f"there was no answer within {self.limits.seconds:g} seconds: ask for less at a time") from None

    async def predict(self, run: Served, question: Question) -> Any:
        """Questions with the same options are answered together, unless their answers depend on each other."""
        assert question.options is not None
        kind = (run.name, question.options.model_dump_json())
        alone = () if question.options.may_share_a_batch else (id(question),)
        return await self.together(run.predict, question, (*kind, *alone))

    async def lines(self, run: Served, question: Question) -> AsyncIterator[bytes]:
        """What a run tells while it writes, a line of JSON each. It stops when nobody listens any more.

        What goes wrong before the first line is raised, and so has a status of its own; after that it is a line.
        """
        loop, told, left = asyncio.get_running_loop(), asyncio.Queue[Told](), False

        def tell(message: Json) -> None:
            if left:
                raise Stopped
            loop.call_soon_threadsafe(told.put_nowait, message)

        def work(questions: Sequence[Question]) -> list[None]:
            try:
                for one in questions:
                    run.stream(one, tell)
            except Stopped:
                pass
            except Exception as error:
                loop.call_soon_threadsafe(told.put_nowait, error)
            finally:
                loop.call_soon_threadsafe(told.put_nowait, None)
            return [None] * len(questions)

        self.worker.submit(work, question, self.limits.seconds)
        begun, deadline = False, loop.time() + self.limits.seconds
        try:
            while (message := await _before(deadline - loop.time(), told)) is not None:
                if isinstance(message, Exception):
                    if not begun:
                        raise message
                    yield as_json({"error": _sentence(message)}) + b"\n"
                    return
                yield as_json(message) + b"\n"
                begun = True
        finally:
            left = True


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


def create_app(runs: Mapping[str, Served], limits: Limits | None = None, access: Access | None = None) -> FastAPI:
    limits, access = limits or Limits(), access or Access()
    metrics = Metrics()
    asking = Asking(runs, limits, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(asking.worker.close)

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
    _add_questions(app, asking)
    _add_state(app, asking, metrics)
    pages = _add_page(app)
    _add_errors(app)
    paths = [route.path for route in app.routes if hasattr(route, "path") and "{" not in route.path]
    app.add_middleware(Guard, limits=limits, access=access, metrics=metrics, paths=[*paths, *pages])
    return app


def _add_questions(app: DescribedApp, asking: Asking) -> None:
    """The endpoints that every run answers, and those of the tasks that are served."""

    async def predict(request: Request) -> Response:
        body = await asking.body(request)
        run = asking.run(body)
        bodies = several(body, run.run, asking.limits)
        if bodies is None:
            return Answer(await asking.predict(run, run.read("predict", body)))
        questions = [run.read("predict", one) for one in bodies]
        answers = await asyncio.gather(*(asking.predict(run, question) for question in questions))
        return Answer({"run": run.name, "answers": answers})

    async def look(request: Request) -> Response:
        body = await asking.body(request)
        run = asking.run(body)
        content = await asking.one(lambda question: as_json(run.look(question)), run.read("look", body))
        return Response(content, media_type="application/json")

    async def figure(request: Request) -> Response:
        body = await asking.body(request)
        run = asking.run(body)
        question = run.read("figure", body)
        return Response(await asking.one(run.figure, question), media_type=_PICTURES[question.fields.format])

    async def stream(request: Request) -> StreamingResponse:
        body = await asking.body(request)
        run = asking.run(body)
        lines = asking.lines(run, run.read("stream", body))
        first = await anext(lines)  # what can be refused is refused with its own status

        async def all_lines() -> AsyncIterator[bytes]:
            yield first
            async for line in lines:
                yield line

        return StreamingResponse(all_lines(), media_type="application/x-ndjson")

    _add(app, asking, "predict", "Answer an input, or a list of inputs", predict)
    _add(app, asking, "look", "What was attended to: a view with its maps of weights", look)
    _add(app, asking, "figure", "The same as a picture (PNG, SVG or PDF)", figure)
    streams = [run.streams for run in asking.runs.values() if run.streams is not None]
    if streams:
        _add(app, asking, "stream", streams[0].summary, stream)
    for name, summary in {q.name: q.summary for run in asking.runs.values() for q in run.questions.values()}.items():
        _add(app, asking, name, summary, _own_question(asking, name))


def _own_question(asking: Asking, name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        body = await asking.body(request)
        run = asking.run(body)
        question = run.read(name, body)
        content = await asking.one(lambda one: as_json(run.answer(name, one)), question)
        return Response(content, media_type="application/json")

    return answer


def _add(
    app: DescribedApp, asking: Asking, name: str, summary: str, endpoint: Callable[[Request], Awaitable[Response]]
) -> None:
    """An endpoint, described by the body that each run takes there."""
    body, definitions = request_body(name, asking.runs)
    app.definitions = {**app.definitions, **definitions}
    app.add_api_route(f"/api/{name}", endpoint, methods=["POST"], summary=summary, openapi_extra={"requestBody": body})


def _add_state(app: FastAPI, asking: Asking, metrics: Metrics) -> None:
    infos = [run.info() for run in asking.runs.values()]
    limits = {name: float(value) for name, value in asdict(asking.limits).items()}

    @app.get("/api/runs", summary="What can be asked, with examples")
    async def runs() -> Runs:
        return Runs(runs=infos, limits=limits)

    @app.get("/healthz", summary="Whether the server is up")
    async def healthz() -> Health:
        return Health(status="ok", runs=len(infos))

    @app.get("/metrics", summary="Counters, in the text form of Prometheus", response_class=Response)
    async def prometheus() -> Response:
        return Response(metrics.text(lambda: asking.worker.waiting), media_type="text/plain; version=0.0.4")


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


def as_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
