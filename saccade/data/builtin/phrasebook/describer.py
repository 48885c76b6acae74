"""Composes the noun phrases, places and times of the built-in corpus; author.py makes sentences of them.

Every part is given a budget of English words. It may use less, and it uses more only where it cannot do with less. Choices draw
on `Random.random()` alone, whose sequence is the same in every version of Python.
"""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

from . import expressions as say
from . import lexicon
from .grammar import (
    NounPhrase,
    Span,
    both,
    country_phrase,
    fixed,
    join,
    named,
    noun_phrase,
    prepositional,
    with_more,
)
from .lexicon import (
    COUNTS,
    EVERY,
    OWNERS,
    THE,
    THIS,
    A,
    Adjective,
    Determiner,
    Group,
    Noun,
    Pairing,
    pairing,
)

Choice = TypeVar("Choice")
When = Literal["present", "past", "pluperfect", "future"]
Kind = Literal["folk", "office", "body"]  # people in private, people in office, institutions and countries

FOLK = (lexicon.FOLK, lexicon.FOLK, lexicon.KIN)
OFFICES = (lexicon.LEADERS, lexicon.OFFICES)
PEOPLE = (*FOLK, *OFFICES)
# "I" has verb forms of its own, so it comes more often
PRONOUNS = (*say.SUBJECTS, *say.SUBJECTS[:1], *say.SUBJECTS[:1])
PERSONS = (*say.GIRLS, *say.BOYS)
SINGLE_COUNTRIES = tuple(country for country in say.COUNTRIES if not country.plural)
IN_NAMED = pairing("in", "à")
IN_TIME = pairing("in", "en")
ON_THE = pairing("on the", "le/1")
OF_MONTH = Pairing(("of",), ())


class Agent(NamedTuple):
    phrase: NounPhrase
    kind: Kind


def in_month(month: Pairing, year: Pairing) -> Span:
    return join(fixed(IN_TIME), fixed(month), fixed(year))


def on_day(day: Pairing, month: Pairing, year: Pairing) -> Span:
    return join(fixed(ON_THE), fixed(day), fixed(OF_MONTH), fixed(month), fixed(year))


class Describer:
    def __init__(self, generator: random.Random) -> None:
        self._random = generator.random
        self._used: set[object] = set()  # words of this sentence that it should not say twice
        self._timed = False  # the sentence has begun with a time and needs no other

    def _relative(self, head: NounPhrase, group: Group, budget: int) -> Span:
        """A relative clause about `head`: clauses are the author's part."""
        raise NotImplementedError

    def _pick(self, options: Sequence[Choice]) -> Choice:
        return options[int(self._random() * len(options))]

    def _fresh(self, options: Sequence[Choice]) -> Choice:
        """One that this sentence has not used yet, if a few tries find it."""
        for _ in range(4):
            choice = self._pick(options)
            if choice not in self._used:
                break
        self._used.add(choice)
        return choice

    # Who

    def _agent(self, kind: Kind, budget: int) -> Agent:
        if kind == "body":
            chance = self._random()
            if budget < 2 or chance < 0.3:
                return Agent(named(self._fresh(SINGLE_COUNTRIES)), kind)
            return Agent(
                named(self._fresh(say.INSTITUTIONS)) if chance < 0.5 else self._noun(lexicon.BODIES, budget), kind
            )
        if budget > 4 and self._random() < 0.12:
            return Agent(both(self._agent(kind, 2).phrase, self._agent(kind, 2).phrase), kind)
        if kind == "folk" and (budget < 2 or self._random() < 0.15):
            return Agent(self._person(budget), kind)
        return Agent(self._noun(self._pick(FOLK if kind == "folk" else OFFICES), budget), kind)

    def _pronoun(self) -> Agent:
        pairing, person, feminine = self._pick(PRONOUNS)
        span = fixed(pairing)
        return Agent(NounPhrase(span.english, span.french, person, feminine), self._pick(("folk", "office")))

    def _person(self, budget: int) -> NounPhrase:
        name = named(self._fresh(PERSONS))
        return with_more(name, fixed(self._pick(say.SURNAMES).pairing)) if budget > 1 and self._random() < 0.4 else name

    def _someone(self, budget: int) -> NounPhrase:
        """A person whom "of", "to" or "with" can come before."""
        if budget < 2 or self._random() < 0.2:
            return self._person(budget)
        return self._noun(self._pick(PEOPLE), budget, definite=True)

    # What

    def _noun(self, group: Group, budget: int, definite: bool = False, denied: bool = False) -> NounPhrase:
        """`definite` keeps out "some" and numbers; `denied` marks the direct object of a negated verb, kept short."""
        noun = self._fresh(group.nouns)
        plural = self._random() < (0.2 if definite else 0.4)
        before: Adjective | None = None
        after: tuple[Adjective, ...] = ()
        spare = budget - 2
        if spare > 0 and self._random() < 0.35:
            before = self._fresh(group.before)
            spare -= 1
        if spare > 0 and group.kind and self._random() < 0.25:
            after = (self._fresh(group.kind),)
            spare -= 1
        if spare > 0 and group.quality and self._random() < 0.2:
            after = (self._fresh(group.quality), *after)
            spare -= 1
        if denied:
            return noun_phrase(
                A if group is not lexicon.KIN and self._random() < 0.5 else THE, noun, plural, before, after, denied
            )
        if spare > 4 and self._random() < 0.6:
            determiner = THE if definite or self._random() < 0.7 else A
            head = noun_phrase(determiner, noun, plural, before, after)
            return with_more(head, self._relative(head, group, spare))
        if spare > 1 and (not after or group in (lexicon.PAPERS, lexicon.TEXTS)) and self._random() < 0.6:
            return with_more(noun_phrase(THE, noun, plural, before, after), self._complement(group, noun, spare))
        return noun_phrase(self._determiner(group, plural, definite), noun, plural, before, after)

    def _determiner(self, group: Group, plural: bool, definite: bool) -> Determiner:
        chance = self._random()
        if chance < 0.45:
            return THE
        if group.owned and chance < 0.65:
            return self._pick(OWNERS)
        if chance < 0.75:
            return THIS
        if definite:
            return THE if plural else A
        if chance < 0.85:
            return A
        return self._pick(COUNTS) if plural else EVERY if chance < 0.9 else A

    def _complement(self, group: Group, noun: Noun, budget: int) -> Span:
        """What stands behind a noun with a preposition: "of the company", "on agriculture", "in Rome"."""
        if group is lexicon.LEADERS:
            if budget < 4 or self._random() < 0.4:
                return prepositional(say.OF, named(self._fresh(say.INSTITUTIONS)))
            return prepositional(say.OF, self._noun(lexicon.BODIES, budget - 1, definite=True))
        if group is lexicon.BODIES:
            return prepositional(say.OF, named(self._fresh(say.COUNTRIES)))
        if group is lexicon.PAPERS:
            if noun in lexicon.BILATERAL and self._random() < 0.6:
                return join(
                    fixed(say.BETWEEN), both(named(self._fresh(say.COUNTRIES)), named(self._fresh(say.COUNTRIES)))
                )
            return prepositional(say.ON, named(self._fresh(say.TOPICS)))
        if group in (lexicon.KIN, lexicon.TEXTS, lexicon.THINGS):
            return prepositional(say.OF, self._someone(budget - 1))
        return self._named_place(IN_NAMED if group in (lexicon.BUILDINGS, lexicon.OUTDOORS) else say.FROM)

    # Where and when

    def _named_place(self, preposition: Pairing) -> Span:
        if self._random() < 0.6:
            return prepositional(preposition, named(self._fresh(say.CITIES)))
        return country_phrase(preposition, self._fresh(say.COUNTRIES))

    def _place(self, budget: int) -> Span:
        if budget < 3 or self._random() < 0.4:
            return self._named_place(IN_NAMED)
        preposition = self._pick((say.IN, say.IN, say.NEAR, say.BEHIND, say.IN_FRONT_OF))
        group = lexicon.OUTDOORS if preposition in (say.IN, say.NEAR) and self._random() < 0.5 else lexicon.BUILDINGS
        return prepositional(preposition, self._noun(group, budget - len(preposition.english), definite=True))

    def _destination(self, budget: int) -> Span:
        if budget < 3 or self._random() < 0.4:
            return self._named_place(say.TO)
        return prepositional(say.TO, self._noun(lexicon.BUILDINGS, budget - 1, definite=True))

    def _time(self, tense: When, budget: int) -> Span:
        if tense == "future":
            return fixed(self._pick(say.FUTURE_TIMES))
        if tense == "present":
            return fixed(self._pick(say.PRESENT_TIMES))
        chance = self._random()
        if tense == "past" and chance < 0.3:
            return fixed(self._pick(say.PAST_TIMES))
        if budget > 5 and chance < 0.6:
            return on_day(self._pick(say.DAYS), self._pick(say.MONTHS), self._pick(say.YEARS))
        if budget > 2 and chance < 0.85:
            return in_month(self._pick(say.MONTHS), self._pick(say.YEARS))
        return join(fixed(IN_TIME), fixed(self._pick(say.YEARS)))

    def _with_place_and_time(self, span: Span, kind: Kind, budget: int, tense: When) -> Span:
        """Private people do things in front of churches, ministers in Rome or in Spain, institutions nowhere."""
        spare = budget - len(span.english)
        if spare > 1 and kind != "body" and self._random() < 0.6:
            span = join(span, self._place(min(spare, 4) if kind == "folk" else 2))
        return self._with_time(span, budget, tense)

    def _with_time(self, span: Span, budget: int, tense: When) -> Span:
        spare = budget - len(span.english)
        if self._timed or spare < 2 or self._random() < 0.4:
            return span
        return join(span, self._time(tense, spare))
