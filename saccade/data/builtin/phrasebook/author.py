"""Invents sentences for the built-in corpus: who does what to whom, and which clause hangs on which.

An author chooses how long a sentence should be and spends its words from left to right: each part is given a budget, may use
less, and leaves the rest to the next.

What keeps the French a function of the English:
- a relative clause belongs to the noun right before it, so its agreement can be read off the sentence;
- "it" and "them" as direct objects stand for the object of the verb just before ("wrote the letter and published it");
- whole clauses are coordinated only at the top, after a comma;
- "read", whose past looks like its present, has no present but "reads".
"""

from collections.abc import Callable, Sequence

from . import expressions as say
from . import lexicon
from .describer import FOLK, OFFICES, Agent, Describer, Kind, When
from .expressions import Object
from .grammar import (
    IL,
    JE,
    NOUS,
    VOUS,
    Being,
    Denial,
    Negation,
    NounPhrase,
    Span,
    being,
    described,
    fixed,
    infinitive,
    join,
    modal,
    passive,
    prepositional,
    verb_phrase,
)
from .lexicon import (
    BODIES,
    BUILDINGS,
    KIN,
    LEADERS,
    OUTDOORS,
    PAPERS,
    TEXTS,
    THINGS,
    Group,
    Verb,
    verbs_named,
)

LONGEST = 40  # words of a sentence, punctuation counted

WANT, HOPE, STAY, LEAVE, VOTE = verbs_named("want hope stay leave vote")
MOVING = verbs_named("go return")
DECIDING = verbs_named("decide refuse try")  # all take "de" before an infinitive
GIVING = {TEXTS: verbs_named("give show send"), THINGS: verbs_named("give show sell")}
BEING_SOMEWHERE = verbs_named("sing work sleep speak dance arrive")
RESTING = (*BEING_SOMEWHERE, LEAVE)
SAYING_NOW = verbs_named("say think know believe hope")
SAYING_THEN = verbs_named("say announce explain")

INANIMATE = (PAPERS, PAPERS, TEXTS, TEXTS, THINGS, BUILDINGS)
OBJECTS: dict[Kind, tuple[Group, ...]] = {
    "folk": (TEXTS, TEXTS, THINGS, THINGS, BUILDINGS, OUTDOORS, OUTDOORS, *FOLK),
    "office": (PAPERS, PAPERS, PAPERS, TEXTS, BUILDINGS, BODIES, *OFFICES),
    "body": (PAPERS, PAPERS, PAPERS, TEXTS, BODIES, LEADERS),
}
SUBJECTS: dict[Group, tuple[Kind, ...]] = {
    group: tuple(kind for kind in OBJECTS if group in OBJECTS[kind])
    for group in (*INANIMATE, OUTDOORS, BODIES, *FOLK, *OFFICES)
}
SPEAKERS: tuple[Kind, ...] = ("folk", "folk", "office", "office", "body")


class Author(Describer):
    """Draws sentences from the grammar."""

    def sentence(self) -> Span:
        """A sentence without its full stop."""
        while True:
            self._used.clear()
            self._timed = False
            span = self._opened(2 + int(44 * self._random()))
            if len(span.english) < LONGEST:
                return span

    # Clauses

    def _opened(self, budget: int) -> Span:
        tense: When = self._pick(("past", "past", "past", "present", "present", "future"))
        chance = self._random()
        if budget > 7 and chance < 0.1:
            return join(fixed(self._pick(say.OPENINGS)), fixed(say.COMMA), self._linked(budget - 3, tense))
        if budget > 8 and chance < 0.25:
            time = self._time(tense, budget - 6)
            self._timed = True
            return join(time, fixed(say.COMMA), self._clause(budget - 1 - len(time.english), tense))
        return self._linked(budget, tense)

    def _linked(self, budget: int, tense: When) -> Span:
        """One clause, or two with a word between or before them."""
        if budget < 9 or self._random() < 0.35:
            return self._clause(budget, tense)
        share = int(budget * (0.3 + 0.4 * self._random()))
        link = self._pick((say.BECAUSE, say.BECAUSE, say.WHEN, say.IF, say.AND, say.BUT, say.SO))
        if link in (say.AND, say.BUT, say.SO):
            first = self._clause(share, tense)
            return join(first, fixed(say.COMMA), fixed(link), self._clause(budget - 2 - len(first.english), tense))
        condition = tense
        if link is say.IF:
            condition, tense = "present", "future"
        elif link is say.WHEN:
            condition = tense = "present" if tense == "present" else "past"
        if link is not say.BECAUSE and self._random() < 0.5:
            first = self._clause(share, condition)
            return join(fixed(link), first, fixed(say.COMMA), self._clause(budget - 2 - len(first.english), tense))
        first = self._clause(share, tense)
        return join(first, fixed(link), self._clause(budget - 1 - len(first.english), condition))

    def _clause(self, budget: int, tense: When) -> Span:
        share = int(budget * (0.15 + 0.4 * self._random()))
        chance = self._random()
        if budget > 4 and chance < 0.25:
            group = self._pick(INANIMATE)
            subject = self._noun(group, share + 2)
            return join(subject, self._state(subject, group, budget - len(subject.english), tense))
        agent = self._pronoun() if chance > 0.75 or budget < 3 else self._agent(self._pick(SPEAKERS), share)
        return join(agent.phrase, self._act(agent, budget - len(agent.phrase.english), tense))

    def _act(self, agent: Agent, budget: int, tense: When) -> Span:
        acts = ACTS_OF_BODIES if agent.kind == "body" else ACTS_OF_PEOPLE
        return self._pick(acts[max(0, min(budget, len(acts) - 1))])(self, agent, budget, tense)

    # What agents do

    def _rest(self, agent: Agent, budget: int, tense: When) -> Span:
        verb = VOTE if agent.kind == "body" else self._pick(RESTING)
        span, _ = self._verb(agent.phrase, verb, tense)
        if verb is LEAVE:  # "partir à Rome" is to leave for Rome, not in Rome
            return self._with_time(span, budget, tense)
        spare = budget - len(span.english)
        if spare > 2 and agent.kind == "folk" and self._random() < 0.3:
            span = join(span, prepositional(say.WITH, self._someone(min(spare - 1, 4))))
        return self._with_place_and_time(span, agent.kind, budget, tense)

    def _move(self, agent: Agent, budget: int, tense: When) -> Span:
        if self._random() < 0.3:
            verb, _ = self._verb(agent.phrase, STAY, tense)
            return self._with_time(join(verb, self._place(budget - len(verb.english))), budget, tense)
        verb, _ = self._verb(agent.phrase, self._pick(MOVING), tense)
        return self._with_time(join(verb, self._destination(budget - len(verb.english))), budget, tense)

    def _help(self, agent: Agent, budget: int, tense: When) -> Span:
        pronoun = self._other(say.DIRECT, agent)
        verb, _ = self._verb(agent.phrase, self._pick(KIN.verbs), tense, pronoun, preceding=pronoun)
        return self._with_place_and_time(verb, agent.kind, budget, tense)

    def _do(self, agent: Agent, budget: int, tense: When) -> Span:
        group = self._pick(OBJECTS[agent.kind])
        verb, denied = self._verb(agent.phrase, self._fresh(group.verbs), tense)
        object_ = self._noun(group, budget - len(verb.english), denied=denied)
        whole = join(verb, object_)
        if len(object_.english) > 4:
            return whole
        if group in (BUILDINGS, OUTDOORS):
            return self._with_time(whole, budget, tense)
        return self._with_place_and_time(whole, agent.kind, budget, tense)

    def _do_twice(self, agent: Agent, budget: int, tense: When) -> Span:
        """ "wrote the letter and published it": the pronoun takes the gender of the noun."""
        group = TEXTS if agent.kind == "folk" else PAPERS
        first, second = self._fresh(group.verbs), self._fresh(group.verbs)
        if first is second or tense == "present" or tense == "future":
            return self._do(agent, budget, tense)
        object_ = self._noun(group, 3, definite=True)
        if object_.plural:
            pronoun = Object("them", "les", object_.feminine, True)
        else:
            pronoun = Object("it", "la" if object_.feminine else "le", object_.feminine, False)
        again = verb_phrase(agent.phrase, second, tense, pronoun=pronoun, preceding=pronoun)
        whole = join(verb_phrase(agent.phrase, first, tense), object_, fixed(say.AND), again)
        return self._with_time(whole, budget, tense)

    def _give(self, agent: Agent, budget: int, tense: When) -> Span:
        group = self._pick((TEXTS, THINGS))
        verb = self._pick(GIVING[group])
        if self._random() < 0.5:
            span, denied = self._verb(agent.phrase, verb, tense, self._other(say.INDIRECT, agent))
            return join(span, self._noun(group, budget - len(span.english), denied=denied))
        span, denied = self._verb(agent.phrase, verb, tense)
        span = join(span, self._noun(group, 3, denied=denied))
        return join(span, prepositional(say.TO, self._someone(budget - len(span.english) - 1)))

    def _say(self, agent: Agent, budget: int, tense: When) -> Span:
        inner: When
        if tense == "past" or tense == "pluperfect":
            inner = "pluperfect"
            verb = verb_phrase(agent.phrase, self._pick(SAYING_THEN), tense)
        else:
            chosen = self._pick(SAYING_NOW)
            inner = "future" if chosen is HOPE else self._pick(("past", "present", "future"))
            verb = verb_phrase(agent.phrase, chosen, "present")
        return join(verb, fixed(say.THAT), self._clause(budget - len(verb.english) - 1, inner))

    def _be(self, agent: Agent, budget: int, tense: When) -> Span:
        group = BODIES if agent.kind == "body" else self._pick(FOLK if agent.kind == "folk" else OFFICES)
        return self._quality(agent.phrase, group, budget, tense)

    # What is said of things

    def _state(self, subject: NounPhrase, group: Group, budget: int, tense: When) -> Span:
        if self._random() < 0.35:
            return self._quality(subject, group, budget, tense)
        forms: dict[When, tuple[Being, ...]] = {"past": ("was",), "pluperfect": ("had been",), "future": ("will be",)}
        form = self._pick(forms.get(tense, ("must be", "can be")))
        whole = passive(subject, self._fresh(group.verbs), form, self._denial(subject))
        spare = budget - len(whole.english)
        if spare > 2 and self._random() < 0.6:
            agent = self._agent(self._pick(SUBJECTS[group]), spare - 1).phrase
            whole = join(whole, prepositional(say.BY, agent))
            if len(agent.english) > 4:
                return whole
        return whole if tense == "present" else self._with_time(whole, budget, tense)

    def _quality(self, subject: NounPhrase, group: Group, budget: int, tense: When) -> Span:
        forms: dict[When, Being] = {"present": "is", "future": "will be"}
        adjective = self._fresh(group.predicate)
        verb = being(subject, forms.get(tense, "was"), self._denial(subject))
        if budget > 5 and adjective.english in lexicon.COMPARED:
            other = self._noun(group, budget - len(verb.english) - 3, definite=True)
            return join(verb, fixed(say.MORE), described(subject, adjective), fixed(say.THAN), other)
        if budget > 2 and self._random() < 0.4:
            return join(verb, fixed(say.VERY), described(subject, adjective))
        return join(verb, described(subject, adjective))

    # Verbs

    def _verb(
        self,
        subject: NounPhrase,
        verb: Verb,
        tense: When,
        pronoun: Object | None = None,
        preceding: NounPhrase | Object | None = None,
    ) -> tuple[Span, bool]:
        """The verb in its tense, sometimes behind "wants to" and the like; and whether it is negated."""
        if tense == "future" or self._random() < 0.12 or (tense == "present" and not _has_present(verb, subject)):
            return self._with_infinitive(subject, verb, tense, pronoun)
        chance = self._random()
        negation: Negation = self._denial(subject)
        if negation and not self._timed and chance < 0.5:
            negation = "no longer" if tense == "present" and chance < 0.2 else "never"
        adverb = (
            self._pick(say.PRESENT_ADVERBS if tense == "present" else say.PAST_ADVERBS)
            if not negation and chance > 0.85
            else None
        )
        return verb_phrase(subject, verb, tense, negation, adverb, pronoun, preceding), bool(negation)

    def _with_infinitive(
        self, subject: NounPhrase, verb: Verb, tense: When, pronoun: Object | None
    ) -> tuple[Span, bool]:
        negation = self._denial(subject)
        if tense == "future":
            return join(modal(subject, "going", negation), infinitive(verb, pronoun=pronoun)), bool(negation)
        chance = self._random()
        if tense == "present" and chance < 0.6:
            leading = modal(subject, "can" if chance < 0.3 else "must", negation)
            return join(leading, infinitive(verb, to=False, pronoun=pronoun)), bool(negation)
        if tense == "present" or chance < 0.4:
            leading = verb_phrase(subject, WANT, "present" if tense == "present" else "past", negation)
            return join(leading, infinitive(verb, pronoun=pronoun)), bool(negation)
        return join(verb_phrase(subject, self._pick(DECIDING), tense), infinitive(verb, "de", pronoun=pronoun)), False

    def _denial(self, subject: NounPhrase) -> Denial:
        """French denies "every" and "all" in another way ("aucun"), so they are left alone."""
        return "not" if self._random() < 0.18 and subject.english[0].text not in ("every", "all") else ""

    def _other(self, pronouns: Sequence[Object], agent: Agent) -> Object:
        """A pronoun for someone else than the subject."""
        own = {JE: ("me", "us"), NOUS: ("me", "us"), VOUS: ("you",)}.get(agent.phrase.person, ())
        return self._pick([pronoun for pronoun in pronouns if pronoun.english not in own])

    # Relative clauses

    def _relative(self, head: NounPhrase, group: Group, budget: int) -> Span:
        tense: When = "past" if self._random() < 0.7 else "present"
        leading = budget > 10 or self._random() < 0.5  # a long one in the middle could not be followed
        kind: Kind | None = (
            "folk" if group in FOLK else "office" if group in OFFICES else "body" if group is BODIES else None
        )
        if leading and kind:
            return join(
                fixed(say.WHICH if kind == "body" else say.WHO), self._act(Agent(head, kind), budget - 1, tense)
            )
        if group in (BUILDINGS, OUTDOORS) and self._random() < 0.5:
            agent = self._agent("folk", min(budget - 3, 4))
            verb, _ = self._verb(agent.phrase, self._pick(BEING_SOMEWHERE), tense)
            return join(fixed(say.WHERE), agent.phrase, verb)
        if leading and group is not OUTDOORS:
            return join(fixed(say.WHICH), self._state(head, group, budget - 1, tense))
        return join(
            fixed(say.WHOM if kind in ("folk", "office") else say.THAT), self._done_to(head, group, budget - 1, tense)
        )

    def _done_to(self, head: NounPhrase, group: Group, budget: int, tense: When) -> Span:
        """Subject and verb of a relative clause whose object is `head`: the participle agrees with it."""
        agent = (
            self._pronoun() if self._random() < 0.25 else self._agent(self._pick(SUBJECTS[group]), min(budget - 2, 5))
        )
        verb, _ = self._verb(agent.phrase, self._fresh(group.verbs), tense, preceding=head)
        place = "body" if group in (BUILDINGS, OUTDOORS) else agent.kind
        return self._with_place_and_time(join(agent.phrase, verb), place, budget, tense)


def _has_present(verb: Verb, subject: NounPhrase) -> bool:
    looks_like_past = verb.english[0] == verb.english[2]
    return subject.person == IL or bool(verb.present[subject.person] and not looks_like_past)


Act = Callable[[Author, Agent, int, When], Span]


def _acts(*choices: tuple[Act, int, int]) -> tuple[tuple[Act, ...], ...]:
    """The acts that fit a budget of 0 to 16 words, 16 standing for all above: (act, least, most)."""
    return tuple(tuple(act for act, least, most in choices if least <= budget <= most) for budget in range(17))


ACTS_OF_PEOPLE = _acts(
    (Author._rest, 0, 12),
    (Author._rest, 0, 5),
    (Author._help, 2, 10),
    (Author._be, 2, 8),
    (Author._move, 3, 12),
    (Author._move, 3, 9),
    (Author._do, 3, 16),
    (Author._do, 5, 16),
    (Author._give, 4, 16),
    (Author._do_twice, 7, 14),
    (Author._say, 7, 16),
)
ACTS_OF_BODIES = _acts(
    (Author._rest, 0, 6),
    (Author._be, 2, 8),
    (Author._do, 3, 16),
    (Author._do, 5, 16),
    (Author._do_twice, 7, 14),
    (Author._say, 7, 16),
)
