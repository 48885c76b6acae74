"""How an English phrase becomes a French one: agreement, word order, negation, pronouns, tenses, contraction, elision.

Nothing here is random: every function renders exactly what it is told, in both languages at once. A French word carries the
English words it renders, so alignments survive every change of order and are read off at the end.

What is aligned with what:
- a verb with all words of its French tense ("signed" - "a signé"), an English auxiliary with the French finite verb
  ("did not sign" - "n'a pas signé": did - a, sign - signé; "was signed" - "a été signé": was - a été);
- both halves of a negation with "not", "never" or "no longer"; "cannot" also with "peut";
- a contraction with both its parts ("of the" - "du"); an object pronoun with its pronoun;
- unaligned: French articles that English does without ("trade" - "le commerce"), "to" of an infinitive unless French has a
  word for it ("decided to" - "a décidé de"), "on" and "of" in dates ("on the third of May" - "le trois mai").
"""

from collections.abc import Mapping
from typing import Literal

from .expressions import AND, Object
from .lexicon import A, Adjective, Determiner, Name, Noun, Pairing, Verb

JE, IL, NOUS, VOUS, ILS = range(5)
BASE, THIRD, PAST, PARTICIPLE = range(4)  # of Verb.english
Tense = Literal["present", "past", "pluperfect"]
Denial = Literal["", "not"]
Negation = Literal["", "not", "never", "no longer"]
Modal = Literal["can", "must", "going"]
Being = Literal["is", "was", "had been", "will be", "must be", "can be"]

AVOIR = ("ai", "a", "avons", "avez", "ont")
AVOIR_IMPERFECT = ("avais", "avait", "avions", "aviez", "avaient")
ETRE = ("suis", "est", "sommes", "êtes", "sont")
ETRE_IMPERFECT = ("étais", "était", "étions", "étiez", "étaient")
ETRE_FUTURE = ("serai", "sera", "serons", "serez", "seront")
MUST = ("dois", "doit", "devons", "devez", "doivent")
CAN = ("peux", "peut", "pouvons", "pouvez", "peuvent")
GOING = ("vais", "va", "allons", "allez", "vont")
IS = ("am", "is", "are", "are", "are")
WAS = ("was", "was", "were", "were", "were")
MODALS = {"can": CAN, "must": MUST, "going": GOING}

# The finite verb and what follows it.
BEING = {
    "is": (ETRE, ""),
    "was": (ETRE_IMPERFECT, ""),
    "will be": (ETRE_FUTURE, ""),
    "must be": (MUST, "être"),
    "can be": (CAN, "être"),
}
PASSIVE = {**BEING, "was": (AVOIR, "été"), "had been": (AVOIR_IMPERFECT, "été")}

NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
VOWELS = frozenset("aeiouhâàéèêîôûœAEIOUHÂÉÈÊÎÔŒ")
ASPIRATED = frozenset(("Hongrie", "huit", "onze"))


class Word:
    """An English word of one sentence. French words point at it; its position is known when the sentence is complete."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = -1


Token = tuple[str, tuple[Word, ...]]  # a French word and the English words it renders


class Span:
    """A piece of a sentence in both languages."""

    __slots__ = ("english", "french")

    def __init__(self, english: list[Word], french: list[Token]) -> None:
        self.english = english
        self.french = french


class NounPhrase(Span):
    __slots__ = ("feminine", "person")

    def __init__(self, english: list[Word], french: list[Token], person: int, feminine: bool) -> None:
        self.english = english
        self.french = french
        self.person = person
        self.feminine = feminine

    @property
    def plural(self) -> bool:
        return self.person >= NOUS


def join(*spans: Span) -> Span:
    english: list[Word] = []
    french: list[Token] = []
    for span in spans:
        english += span.english
        french += span.french
    return Span(english, french)


def fixed(pairing: Pairing) -> Span:
    words = [Word(text) for text in pairing.english]
    if len(words) == 1:
        whole = (words[0],)
        return Span(words, [(text, whole if numbers else ()) for text, numbers in pairing.french])
    return Span(words, [(text, tuple([words[number] for number in numbers])) for text, numbers in pairing.french])


def begins_with_vowel(french: str) -> bool:
    return french[0] in VOWELS and french not in ASPIRATED


# Noun phrases


def named(name: Name) -> NounPhrase:
    span = fixed(name.pairing)
    return NounPhrase(span.english, span.french, ILS if name.plural else IL, name.feminine)


def noun_phrase(
    determiner: Determiner,
    noun: Noun,
    plural: bool = False,
    before: Adjective | None = None,
    after: tuple[Adjective, ...] = (),
    denied: bool = False,
) -> NounPhrase:
    """`after` stands in English order and is mirrored behind the French noun. `denied`: the direct object of a negated verb."""
    gender = 2 * plural + noun.feminine
    head = Word(noun.english[plural])
    text = noun.french[plural]
    french: list[Token] = [(text, (head,))]
    english: list[Word] = []
    for adjective in after:
        word = Word(adjective.english)
        english.append(word)
        french.insert(1, (adjective.french[gender], (word,)))
    english.append(head)
    if before:
        word = Word(before.english)
        english.insert(0, word)
        text = before.french[4 if not gender and begins_with_vowel(text) else gender]
        french.insert(0, (text, (word,)))
    if determiner is A and (denied or (plural and before)):  # "il n'a pas signé de loi", "de nouvelles lois"
        word = Word(("any" if denied else "some") if plural else "a")
        article = Span([word], [("de", (word,))])
    elif plural:
        article = fixed(determiner.plural[noun.feminine])
    else:
        article = fixed(determiner.singular[2 * begins_with_vowel(text) + noun.feminine])
    return NounPhrase(article.english + english, article.french + french, ILS if plural else IL, noun.feminine)


def with_more(head: NounPhrase, *more: Span) -> NounPhrase:
    """A noun phrase with something behind it: a prepositional phrase or a relative clause."""
    whole = join(head, *more)
    return NounPhrase(whole.english, whole.french, head.person, head.feminine)


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    whole = join(first, fixed(AND), second)
    return NounPhrase(whole.english, whole.french, ILS, first.feminine and second.feminine)


def prepositional(preposition: Pairing, phrase: Span) -> Span:
    span = fixed(preposition)
    article = phrase.french[0]
    contracted = CONTRACTED.get((span.french[-1][0], article[0]))
    if contracted and not (article[0] == "le" and begins_with_vowel(phrase.french[1][0])):
        merged = (contracted, span.french[-1][1] + article[1])
        return Span(span.english + phrase.english, [*span.french[:-1], merged, *phrase.french[1:]])
    return join(span, phrase)


def country_phrase(preposition: Pairing, country: Name) -> Span:
    """Feminine countries take "en" or "de" without article, the others contract: "en France", "au Canada", "des États-Unis"."""
    phrase = named(country)
    if not country.feminine:
        return prepositional(preposition, phrase)
    word = Word(preposition.english[0])
    text = preposition.french[0][0]
    return Span([word, *phrase.english], [("en" if text == "à" else text, (word,)), *phrase.french[1:]])


# Verbs


def agreeing(participle: str, feminine: bool, plural: bool) -> str:
    if feminine:
        return participle + ("es" if plural else "e")
    return participle + "s" if plural and participle[-1] != "s" else participle


def verb_phrase(
    subject: NounPhrase,
    verb: Verb,
    tense: Tense,
    negation: Negation = "",
    adverb: Pairing | None = None,
    pronoun: Object | None = None,
    preceding: NounPhrase | Object | None = None,
) -> Span:
    """The verb with its negation or adverb and its object pronoun; `preceding`: the direct object, when it stands before."""
    person = subject.person
    auxiliary, form = _english_tense(tense, negation, person == IL)
    finite, participle = _french_tense(verb, tense, person)
    main = Word(verb.english[form])
    helper = (Word(auxiliary),) if auxiliary else ()
    middle = tuple([Word(text) for text in (negation.split() if negation else adverb.english if adverb else ())])
    english = [*helper, *middle, main]
    french: list[Token] = [(finite, helper if helper and participle else (*helper, main))]
    if pronoun:
        word = Word(pronoun.english)
        english.append(word)
        french.insert(0, (pronoun.french, (word,)))
    if negation:
        french = [("ne", middle), *french, (NEGATIONS[negation], middle)]
    elif adverb:
        french.append((adverb.french[0][0], middle))
    if participle:
        owner = subject if verb.moves else preceding
        french.append((agreeing(participle, owner.feminine, owner.plural) if owner else participle, (main,)))
    return Span(english, french)


def _english_tense(tense: Tense, negation: Negation, singular: bool) -> tuple[str, int]:
    """The auxiliary, if any, and which form of the main verb."""
    if tense == "pluperfect":
        return "had", PARTICIPLE
    if tense == "past":
        return ("did", BASE) if negation == "not" else ("", PAST)
    if negation == "not":
        return "does" if singular else "do", BASE
    return "", THIRD if singular else BASE


def _french_tense(verb: Verb, tense: Tense, person: int) -> tuple[str, str]:
    """The finite verb and, in compound tenses, the participle."""
    if tense == "present":
        return verb.present[person], ""
    if tense == "past":
        if verb.imperfect:
            return verb.imperfect[person], ""
        return (ETRE if verb.moves else AVOIR)[person], verb.participle
    return (ETRE_IMPERFECT if verb.moves else AVOIR_IMPERFECT)[person], verb.participle


def infinitive(verb: Verb, marker: str = "", to: bool = True, pronoun: Object | None = None) -> Span:
    """ "to see him" - "le voir", with marker: "de le voir". The marker never contracts with a pronoun."""
    main = Word(verb.english[0])
    particle = [Word("to")] if to else []
    english = [*particle, main]
    french: list[Token] = [(marker, tuple(particle))] if marker else []
    if pronoun:
        word = Word(pronoun.english)
        english.append(word)
        french.append((pronoun.french, (word,)))
    french.append((verb.infinitive, (main,)))
    return Span(english, french)


def modal(subject: NounPhrase, name: Modal, negation: Denial = "") -> Span:
    """ "can", "must" and "is going", before an infinitive (the last with "to")."""
    words = [Word(IS[subject.person]), Word("going")] if name == "going" else [Word(name)]
    finite = (MODALS[name][subject.person], tuple(words))
    return Span(*_denied(words, finite)) if negation else Span(words, [finite])


def being(subject: NounPhrase, form: Being, negation: Denial = "") -> Span:
    """The forms of "be" before an adjective: "was useful" - "était utile"."""
    return _be(subject.person, form, negation, BEING)


def passive(subject: NounPhrase, verb: Verb, form: Being, negation: Denial = "") -> Span:
    """The forms of "be" before a participle: "was signed" - "a été signé"."""
    word = Word(verb.english[3])
    participle = (agreeing(verb.participle, subject.feminine, subject.plural), (word,))
    return join(_be(subject.person, form, negation, PASSIVE), Span([word], [participle]))


def _be(person: int, form: Being, negation: Denial, tenses: Mapping[str, tuple[tuple[str, ...], str]]) -> Span:
    first, _, second = form.partition(" ")
    words = [Word(first), Word(second)] if second else [Word((IS if form == "is" else WAS)[person])]
    forms, rest = tenses[form]
    finite = (forms[person], (words[0],) if rest else tuple(words))
    ending: list[Token] = [(rest, (words[-1],))] if rest else []
    english, french = _denied(words, finite) if negation else (words, [finite])
    return Span(english, french + ending)


def _denied(words: list[Word], finite: Token) -> tuple[list[Word], list[Token]]:
    """ "is not", "must not", but "cannot" in one word."""
    if words[0].text == "can":
        denial = words[0]
        denial.text = "cannot"
    else:
        denial = Word("not")
        words = [words[0], denial, *words[1:]]
    return words, [("ne", (denial,)), finite, ("pas", (denial,))]


def described(subject: NounPhrase, adjective: Adjective) -> Span:
    """An adjective behind "be", agreeing with the subject."""
    word = Word(adjective.english)
    return Span([word], [(adjective.french[2 * subject.plural + subject.feminine], (word,))])
