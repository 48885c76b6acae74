"""A translation run as the server shows it: translations, what each word looked at, what else could have stood there.

The alternatives of a word are whole words also where the model writes pieces: each of the likeliest first pieces is completed greedily up
to the end of its word, and the word's probability is the product of its pieces'.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.data.text.pairs import normalise
from saccade.data.text.tokenizer import BOS, EOS, PAD, Tokenizer
from saccade.decoding import Hypothesis
from saccade.decoding.constraints import Constraints
from saccade.decoding.greedy import most_probable
from saccade.decoding.walk import walk
from saccade.errors import UserError
from saccade.serve.messages import (
    AlternativesQuestion,
    CalculationQuestion,
    FigureQuestion,
    LookQuestion,
    PredictQuestion,
    StreamQuestion,
)
from saccade.serve.served import Served, map_figure, settings_of, word_probabilities, written
from saccade.tasks.translation import look as replay
from saccade.tasks.translation.calculation import calculation
from saccade.tasks.translation.searching import room
from saccade.tasks.translation.task import TranslationTask
from saccade.tasks.writing import generate

_LONGEST_WORD = 12  # pieces of an alternative


class Stopped(Exception):
    """Nobody listens any more."""


class TextRun(Served):
    """Sentences in, sentences out."""

    reads = "text"

    @property
    def task(self) -> TranslationTask:
        task = self.run.task
        assert isinstance(task, TranslationTask)
        return task

    @property
    def writes(self) -> Tokenizer:
        return self.task.vocabularies.target

    def check(self, question: Any) -> None:
        if question.text is None or getattr(question, "image", None) is not None:
            raise UserError(f"the run {self.name} reads sentences: give `text`, and no `image`")
        for name in ("text", "target", "prefix"):
            given = getattr(question, name, None) or ""
            if len(given) > self.limits.characters:
                raise UserError(
                    f"the {name} has {len(given):,} characters, and {self.limits.characters:,} are allowed: split it into sentences"
                )

    def examples(self) -> list[str]:
        """Held-out sentences of a length that shows something, the shortest first."""
        sources = {phrase.source for phrase in self.task.corpus.valid[:200]}
        fitting = sorted((source for source in sources if 20 <= len(source) <= 70), key=lambda text: (len(text), text))
        fitting = fitting or sorted(sources, key=len)
        return fitting[:: max(1, len(fitting) // 6)][:6]

    # Predicting

    def predict(self, questions: Sequence[PredictQuestion]) -> list[dict[str, Any]]:
        settings = settings_of(questions[0])
        prefixes = [self.target(question.prefix)[0] for question in questions]
        texts = [str(question.text) for question in questions]
        found = self.task.predict(texts, prefixes if any(prefixes) else None, best=questions[0].best, **settings)
        return [
            {
                "run": self.name,
                "source": each.source,
                "translations": [
                    written(text, hypothesis, self.writes)
                    for text, hypothesis in zip(each.lines(), each.hypotheses, strict=True)
                ],
            }
            for each in found
        ]

    @torch.no_grad()
    def stream(self, question: StreamQuestion, tell: Callable[[dict[str, Any]], None]) -> None:
        """Greedy, and every word told as soon as it is written. `tell` may raise Stopped to end it."""
        (source,) = self.task.encode([question.text])
        if not source:
            tell({"done": True, "text": "", "log_prob": 0.0, "finished": True})
            return
        forced = self.beginning(question.prefix)
        self.task.model.eval()
        memory = self.task.encoded([source])[0]
        so_far: list[int] = []

        def choose(log_probs: Tensor, rows: Tensor, position: int) -> Tensor:
            token = most_probable(log_probs, PAD)
            if position < len(forced):
                token = torch.full_like(token, forced[position])
            if int(token) != EOS:
                so_far.append(int(token))
                tell({"text": self.writes.decode(so_far).strip(), "probability": float(log_probs[0, token[0]].exp())})
            return token

        begin = torch.tensor([BOS], device=self.task.device)
        limit = max(room(self.task, source), len(forced))
        (hypothesis,) = walk(self.task.stepper, memory, begin, choose, Constraints.of(begin, EOS, PAD, limit, None))
        text = self.writes.decode(hypothesis.tokens).strip()
        tell({"done": True, "text": text, "log_prob": hypothesis.log_prob, "finished": hypothesis.finished})

    # Looking

    def look(self, question: LookQuestion) -> dict[str, Any]:
        """The maps, and every word of the translation with its probability."""
        source = str(question.text)
        self.task.encode([source])
        given = None if question.target is None else self.target(question.target)[0]
        maps = replay.look(self.task, source, given, question.words, question.only).maps if self.attends() else ()
        target = self.task.predict([source])[0].text if given is None else given
        (scored,) = self.task.score([(source, target)])
        return {
            "run": self.name,
            "source": source,
            "target": target,
            "log_prob": scored.log_prob,
            "words": word_probabilities(self.writes, scored),
            "maps": self.shown(maps),
        }

    def figure(self, question: FigureQuestion) -> bytes:
        source = str(question.text)
        target = None if question.target is None else self.target(question.target)[0]
        self.task.encode([source])
        maps = replay.look(self.task, source, target, question.words, question.only).maps
        return map_figure(self.within(maps, self.limits.drawn), question, source)

    @torch.no_grad()
    def alternatives(self, question: AlternativesQuestion) -> dict[str, Any]:
        """The likeliest words in the place of one word of the target, given the words before it."""
        task = self.task
        (source,) = task.encode([question.text])
        target = self.target(question.target)[1]
        groups = self.writes.word_groups([*target, EOS])
        if not source or question.word > groups[-1]:
            raise UserError(
                f"word {question.word} was asked for, and there are {groups[-1] + 1}: count from 0, the end included"
            )
        before = target[: groups.index(question.word)]
        task.model.eval()
        memory = self.task.encoded([source])[0]
        readouts, _ = task.stepper.read(memory, torch.tensor([[BOS, *before]], device=task.device))
        log_probs = task.output(readouts[0, -1]).double().log_softmax(-1)
        values, tokens = log_probs.topk(min(question.best + 4, len(log_probs)))
        firsts = [
            (token, value)
            for token, value in zip(tokens.tolist(), values.tolist(), strict=True)
            if token not in (PAD, BOS)
        ]
        words = list(self._completed(source, before, firsts[: question.best]))
        words.sort(key=lambda word: -word["probability"])
        return {"run": self.name, "word": question.word, "alternatives": words}

    def _completed(
        self, source: list[int], before: list[int], firsts: Sequence[tuple[int, float]]
    ) -> Iterator[dict[str, Any]]:
        going = [token for token, _ in firsts if token != EOS]
        if going:
            memory = self.task.encoded([source] * len(going))[0]
            config = self.task.recipe.decode.with_changes(
                {"search": "greedy", "max_length": len(before) + _LONGEST_WORD}
            )
            limit = torch.full((len(going),), len(before) + _LONGEST_WORD, device=self.task.device)
            found = generate(self.task.stepper, memory, limit, config, [[*before, token] for token in going])
            for (hypothesis,) in found:
                yield self._alternative(hypothesis, len(before))
        for token, value in firsts:
            if token == EOS:
                yield {"text": replay.END, "probability": math.exp(value), "prefix": None}

    def _alternative(self, hypothesis: Hypothesis, start: int) -> dict[str, Any]:
        groups = self.writes.word_groups(hypothesis.tokens)
        stop = start + 1
        while stop < len(groups) and groups[stop] == groups[start]:
            stop += 1
        own = hypothesis.tokens[start:stop]
        assert hypothesis.token_log_probs is not None
        probability = math.exp(sum(hypothesis.token_log_probs[start:stop]))
        prefix = self.prefix_of(hypothesis.tokens[:stop])
        return {"text": self.writes.decode(own).strip(), "probability": probability, "prefix": prefix}

    def prefix_of(self, tokens: list[int]) -> str | None:
        """The text by which these tokens can be forced; None where that text is read as other tokens."""
        text = self.writes.decode(tokens).strip()
        return text if self.writes.encode(normalise(text)) == tokens else None

    def beginning(self, prefix: str) -> list[int]:
        """The tokens of a forced beginning, all of which the model can write."""
        return self.task.encode_targets([prefix], known=True)[0]

    def calculate(self, question: CalculationQuestion) -> dict[str, Any]:
        """One weight. Of words, the pair of pieces with the largest weight between them."""
        task = self.task
        (source,) = task.encode([question.text])
        target = self.target(question.target)[1]
        (found,) = [each for each in self._pieces(question) if each.name == question.map] or [None]
        if found is None:
            raise UserError(f"this model has no attention called {question.map!r}: /api/look names them")
        if question.head >= found.heads:
            raise UserError(f"head {question.head} was asked for, and there are {found.heads}: count from 0")
        query, key = question.query, question.key
        query_groups, key_groups = self._groups(question.map, source, target)
        if question.words:
            for what, given, groups in (("query", query, query_groups), ("key", key, key_groups)):
                if given > groups[-1]:
                    raise UserError(f"{what} {given} was asked for, and there are {groups[-1] + 1}: count from 0")
            pairs = [
                (q, k) for q, g in enumerate(query_groups) if g == query for k, h in enumerate(key_groups) if h == key
            ]
            query, key = max(pairs, key=lambda pair: float(found.weights[question.head][pair]))
        answer = calculation(task, source, target, question.map, question.head, query, key)
        labels = {"queries": list(found.queries.words), "keys": list(found.keys.words)}
        return {"run": self.name, **answer, **labels, "query_groups": query_groups, "key_groups": key_groups}

    def _pieces(self, question: CalculationQuestion) -> list[Any]:
        pair = (normalise(question.text), normalise(question.target))
        return replay.replay(self.task, [pair], words=False)[0]

    def _groups(self, name: str, source: list[int], target: list[int]) -> tuple[list[int], list[int]]:
        """Which word each piece belongs to, along both sides of a map."""
        of_source = self.task.vocabularies.source.word_groups([*source, EOS])
        of_target = self.writes.word_groups([*target, EOS])
        if "self" not in name:
            return of_target, of_source
        if name.startswith("encoder"):
            return of_source, of_source
        return of_target, self.writes.word_groups([BOS, *target])

    def target(self, text: str) -> tuple[str, list[int]]:
        """A text on the target side and its tokens; too long a one is refused."""
        text = normalise(text)
        tokens, recipe = self.writes.encode(text), self.task.recipe
        longest = max(
            recipe.decode.max_length, getattr(recipe.model, "max_length", 0) - 1
        )  # learned positions end there
        if len(tokens) > longest:
            raise UserError(
                f"a translation of {len(tokens)} tokens was given, and at most {longest} are allowed: shorten it"
            )
        return text, tokens
