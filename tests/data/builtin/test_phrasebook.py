"""The built-in corpus: is its French right, are its alignments right, and do its splits stay apart?"""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from saccade.data.builtin.phrasebook import expressions as say
from saccade.data.builtin.phrasebook import lexicon
from saccade.data.builtin.phrasebook.author import Author
from saccade.data.builtin.phrasebook.describer import IN_NAMED, in_month, on_day
from saccade.data.builtin.phrasebook.expressions import Object
from saccade.data.builtin.phrasebook.grammar import (
    NounPhrase,
    being,
    both,
    country_phrase,
    described,
    fixed,
    infinitive,
    join,
    modal,
    named,
    noun_phrase,
    passive,
    prepositional,
    verb_phrase,
    with_more,
)
from saccade.data.builtin.phrasebook.lexicon import ADJECTIVES, COUNTS, EVERY, OWNERS, THE, THIS, VERBS, A
from saccade.data.builtin.phrasebook.phrases import LECTURE_SENTENCE, Phrase, phrase, phrases, split_of, split_words
from saccade.errors import UserError

GROUPS = [value for value in vars(lexicon).values() if isinstance(value, lexicon.Group)]
NOUNS = {noun.english[0]: noun for group in GROUPS for noun in group.nouns}
NAMES = {
    " ".join(name.pairing.english): name for name in (*say.GIRLS, *say.BOYS, *say.CITIES, *say.COUNTRIES, *say.TOPICS)
}
SUBJECTS = {subject.pairing.english[0]: subject for subject in say.SUBJECTS}
DIRECT = {pronoun.english: pronoun for pronoun in say.DIRECT}
INDIRECT = {pronoun.english: pronoun for pronoun in say.INDIRECT}
MY, HIS, HER, OUR, YOUR, THEIR = OWNERS
TWO, THREE, SEVERAL, MANY, ALL = COUNTS
OFTEN = say.PRESENT_ADVERBS[0]


def a_noun(determiner, words: str, plural: bool = False, denied: bool = False) -> NounPhrase:
    """ "new European law": adjectives in English order, those in front of the French noun found by the table."""
    *adjectives, noun = words.split()
    chosen = [ADJECTIVES[word] for word in adjectives]
    before = chosen.pop(0) if chosen and any(chosen[0] in group.before for group in GROUPS) else None
    return noun_phrase(determiner, NOUNS[noun], plural, before, tuple(chosen), denied)


def pronoun(word: str) -> NounPhrase:
    pairing, person, feminine = SUBJECTS[word]
    span = fixed(pairing)
    return NounPhrase(span.english, span.french, person, feminine)


def doing(subject: NounPhrase, verb: str, tense: str, *more, **options) -> Phrase:
    return phrase(join(subject, verb_phrase(subject, VERBS[verb], tense, **options), *more))


def name(words: str) -> NounPhrase:
    return named(NAMES[words])


def linked(pair: Phrase) -> set[tuple[str, str]]:
    source, target = split_words(pair.source), split_words(pair.target)
    return {(source[i], target[j]) for i, j in pair.alignment}


@pytest.fixture(scope="module")
def sample() -> list[Phrase]:
    """Sentences as they come, repeated ones included."""
    return [
        phrase(author.sentence()) for author in (Author(random.Random(seed)) for seed in (11, 12)) for _ in range(8_000)
    ]


@pytest.mark.parametrize(
    ("determiner", "words", "plural", "english", "french"),
    [
        (THE, "agreement", False, "The agreement.", "L'accord."),
        (THE, "treaty", False, "The treaty.", "Le traité."),
        (THE, "law", True, "The laws.", "Les lois."),
        (THE, "hospital", True, "The hospitals.", "Les hôpitaux."),
        (THE, "story", False, "The story.", "L'histoire."),
        (THE, "former agreement", False, "The former agreement.", "L'ancien accord."),
        (THE, "young man", False, "The young man.", "Le jeune homme."),
        (A, "university", False, "A university.", "Une université."),
        (A, "agreement", False, "An agreement.", "Un accord."),
        (A, "European law", False, "A European law.", "Une loi européenne."),
        (A, "Italian actress", False, "An Italian actress.", "Une actrice italienne."),
        (A, "beautiful white house", False, "A beautiful white house.", "Une belle maison blanche."),
        (
            A,
            "important political decision",
            False,
            "An important political decision.",
            "Une décision politique importante.",
        ),
        (A, "law", True, "Some laws.", "Des lois."),
        (A, "new law", True, "Some new laws.", "De nouvelles lois."),
        (A, "old uncle", True, "Some old uncles.", "De vieux oncles."),
        (A, "former agreement", True, "Some former agreements.", "D'anciens accords."),
        (THE, "old man", False, "The old man.", "Le vieil homme."),
        (THE, "new hospital", False, "The new hospital.", "Le nouvel hôpital."),
        (THE, "beautiful plane", False, "The beautiful plane.", "Le bel avion."),
        (THE, "beautiful plane", True, "The beautiful planes.", "Les beaux avions."),
        (THE, "new church", False, "The new church.", "La nouvelle église."),
        (THE, "international treaty", True, "The international treaties.", "Les traités internationaux."),
        (THE, "national association", True, "The national associations.", "Les associations nationales."),
        (THE, "expensive machine", True, "The expensive machines.", "Les machines chères."),
        (THE, "secret letter", False, "The secret letter.", "La lettre secrète."),
        (THE, "long answer", True, "The long answers.", "Les longues réponses."),
        (THE, "happy woman", True, "The happy women.", "Les femmes heureuses."),
        (THE, "happy child", True, "The happy children.", "Les enfants heureux."),
        (THE, "French speech", True, "The French speeches.", "Les discours français."),
        (THIS, "agreement", False, "This agreement.", "Cet accord."),
        (THIS, "church", False, "This church.", "Cette église."),
        (THIS, "house", False, "This house.", "Cette maison."),
        (THIS, "old hospital", False, "This old hospital.", "Ce vieil hôpital."),
        (THIS, "boat", True, "These boats.", "Ces bateaux."),
        (HIS, "school", False, "His school.", "Son école."),
        (HER, "house", False, "Her house.", "Sa maison."),
        (MY, "story", False, "My story.", "Mon histoire."),
        (MY, "new story", False, "My new story.", "Ma nouvelle histoire."),
        (OUR, "friend", True, "Our friends.", "Nos amis."),
        (YOUR, "key", False, "Your key.", "Votre clé."),
        (THEIR, "answer", True, "Their answers.", "Leurs réponses."),
        (EVERY, "actress", False, "Every actress.", "Chaque actrice."),
        (TWO, "picture", True, "Two pictures.", "Deux tableaux."),
        (SEVERAL, "old church", True, "Several old churches.", "Plusieurs vieilles églises."),
        (MANY, "agreement", True, "Many agreements.", "Beaucoup d'accords."),
        (ALL, "law", True, "All the laws.", "Toutes les lois."),
        (ALL, "court", True, "All the courts.", "Tous les tribunaux."),
    ],
)
def test_determiners_and_adjectives_agree_and_elide(determiner, words, plural, english, french):
    pair = phrase(a_noun(determiner, words, plural))
    assert (pair.source, pair.target) == (english, french)


@pytest.mark.parametrize(
    ("preposition", "thing", "english", "french"),
    [
        (say.OF, a_noun(THE, "minister"), "Of the minister.", "Du ministre."),
        (say.OF, a_noun(THE, "ambassador"), "Of the ambassador.", "De l'ambassadeur."),
        (say.OF, a_noun(THE, "queen"), "Of the queen.", "De la reine."),
        (say.OF, a_noun(THE, "friend", plural=True), "Of the friends.", "Des amis."),
        (say.OF, a_noun(A, "actress"), "Of an actress.", "D'une actrice."),
        (say.OF, name("Alice"), "Of Alice.", "D'Alice."),
        (say.OF, name("Hungary"), "Of Hungary.", "De la Hongrie."),
        (say.OF, name("Canada"), "Of Canada.", "Du Canada."),
        (say.OF, name("the United States"), "Of the United States.", "Des États-Unis."),
        (say.TO, a_noun(THE, "museum"), "To the museum.", "Au musée."),
        (say.TO, a_noun(THE, "hospital"), "To the hospital.", "À l'hôpital."),
        (say.TO, a_noun(THE, "school"), "To the school.", "À l'école."),
        (say.TO, a_noun(THE, "child", plural=True), "To the children.", "Aux enfants."),
        (say.NEAR, a_noun(THE, "garden"), "Near the garden.", "Près du jardin."),
        (say.NEAR, a_noun(THE, "old hospital"), "Near the old hospital.", "Près du vieil hôpital."),
        (say.IN_FRONT_OF, a_noun(THE, "station"), "In front of the station.", "Devant la gare."),
        (say.ON, name("trade"), "On trade.", "Sur le commerce."),
        (say.ON, name("agriculture"), "On agriculture.", "Sur l'agriculture."),
        (say.ON, name("human rights"), "On human rights.", "Sur les droits de l'homme."),
        (IN_NAMED, name("Athens"), "In Athens.", "À Athènes."),
    ],
)
def test_prepositions_contract_with_the_article_unless_it_elides(preposition, thing, english, french):
    pair = phrase(prepositional(preposition, thing))
    assert (pair.source, pair.target) == (english, french)


@pytest.mark.parametrize(
    ("preposition", "country", "french"),
    [
        (IN_NAMED, "Spain", "En Espagne."),
        (IN_NAMED, "Canada", "Au Canada."),
        (IN_NAMED, "the Netherlands", "Aux Pays-Bas."),
        (say.FROM, "Italy", "D'Italie."),
        (say.FROM, "Hungary", "De Hongrie."),
        (say.FROM, "Japan", "Du Japon."),
        (say.FROM, "the United States", "Des États-Unis."),
    ],
)
def test_countries_take_the_preposition_of_their_gender(preposition, country, french):
    assert phrase(country_phrase(preposition, NAMES[country])).target == french


@pytest.mark.parametrize(
    ("pair", "english", "french"),
    [
        (doing(pronoun("I"), "love", "present", a_noun(THIS, "garden")), "I love this garden.", "J'aime ce jardin."),
        (doing(pronoun("she"), "read", "past", a_noun(THE, "book")), "She read the book.", "Elle a lu le livre."),
        (doing(pronoun("she"), "arrive", "past"), "She arrived.", "Elle est arrivée."),
        (doing(pronoun("they"), "leave", "past"), "They left.", "Ils sont partis."),
        (doing(a_noun(THE, "woman", plural=True), "go", "past"), "The women went.", "Les femmes sont allées."),
        (doing(pronoun("we"), "go", "pluperfect", negation="not"), "We had not gone.", "Nous n'étions pas allés."),
        (doing(pronoun("he"), "sing", "present", negation="not"), "He does not sing.", "Il ne chante pas."),
        (doing(pronoun("I"), "help", "past", negation="never"), "I never helped.", "Je n'ai jamais aidé."),
        (doing(pronoun("I"), "buy", "present", negation="no longer"), "I no longer buy.", "Je n'achète plus."),
        (doing(pronoun("she"), "leave", "past", negation="not"), "She did not leave.", "Elle n'est pas partie."),
        (doing(pronoun("they"), "vote", "past", adverb=OFTEN), "They often voted.", "Ils ont souvent voté."),
        (
            doing(name("Anna"), "want", "past", infinitive(VERBS["sing"])),
            "Anna wanted to sing.",
            "Anna voulait chanter.",
        ),
        (
            doing(pronoun("he"), "buy", "past", a_noun(A, "big house", denied=True), negation="not"),
            "He did not buy a big house.",
            "Il n'a pas acheté de grande maison.",
        ),
        (
            doing(
                pronoun("he"), "adopt", "present", a_noun(A, "agreement", plural=True, denied=True), negation="never"
            ),
            "He never adopts any agreements.",
            "Il n'adopte jamais d'accords.",
        ),
    ],
)
def test_verbs_take_their_tense_negation_and_auxiliary(pair, english, french):
    assert (pair.source, pair.target) == (english, french)


@pytest.mark.parametrize(
    ("subject", "verb", "tense", "word", "negation", "english", "french"),
    [
        ("he", "invite", "past", "her", "", "He invited her.", "Il l'a invitée."),
        ("she", "invite", "past", "him", "", "She invited him.", "Elle l'a invité."),
        ("I", "thank", "present", "him", "", "I thank him.", "Je le remercie."),
        ("they", "support", "past", "us", "not", "They did not support us.", "Ils ne nous ont pas soutenus."),
        ("she", "help", "present", "me", "", "She helps me.", "Elle m'aide."),
        ("he", "meet", "present", "her", "never", "He never meets her.", "Il ne la rencontre jamais."),
        ("we", "criticise", "past", "you", "", "We criticised you.", "Nous vous avons critiqués."),
    ],
)
def test_direct_pronouns_stand_before_the_verb_and_the_participle_agrees(
    subject, verb, tense, word, negation, english, french
):
    pair = doing(pronoun(subject), verb, tense, negation=negation, pronoun=DIRECT[word], preceding=DIRECT[word])
    assert (pair.source, pair.target) == (english, french)


@pytest.mark.parametrize(
    ("word", "french"),
    [
        ("him", "Je lui ai donné la clé."),
        ("them", "Je leur ai donné la clé."),
        ("you", "Je vous ai donné la clé."),
    ],
)
def test_indirect_pronouns_stand_before_the_verb_without_agreement(word, french):
    pair = doing(pronoun("I"), "give", "past", a_noun(THE, "key"), pronoun=INDIRECT[word])
    assert (pair.source, pair.target) == (f"I gave {word} the key.", french)


def test_a_participle_agrees_with_the_object_before_it_in_a_relative_clause():
    letters, minister = a_noun(THE, "letter", plural=True), a_noun(THE, "minister")
    clause = join(fixed(say.THAT), minister, verb_phrase(minister, VERBS["sign"], "past", preceding=letters))
    pair = phrase(with_more(letters, clause))
    assert (pair.source, pair.target) == (
        "The letters that the minister signed.",
        "Les lettres que le ministre a signées.",
    )


def test_two_subjects_are_feminine_only_if_both_are():
    women, mixed = both(name("Marie"), name("Anna")), both(name("Marie"), name("Paul"))
    assert doing(women, "arrive", "past").target == "Marie et Anna sont arrivées."
    assert doing(mixed, "arrive", "past").target == "Marie et Paul sont arrivés."


def test_the_pronoun_of_an_infinitive_never_contracts():
    they = pronoun("they")
    pair = doing(they, "refuse", "past", infinitive(VERBS["thank"], "de", pronoun=DIRECT["him"]))
    assert (pair.source, pair.target) == ("They refused to thank him.", "Ils ont refusé de le remercier.")
    assert ("to", "de") in linked(pair)


@pytest.mark.parametrize(
    ("name_of_modal", "negation", "english", "french"),
    [
        ("can", "not", "She cannot work.", "Elle ne peut pas travailler."),
        ("must", "", "She must work.", "Elle doit travailler."),
        ("must", "not", "She must not work.", "Elle ne doit pas travailler."),
        ("going", "not", "She is not going to work.", "Elle ne va pas travailler."),
    ],
)
def test_modals_go_before_an_infinitive(name_of_modal, negation, english, french):
    she = pronoun("she")
    pair = phrase(
        join(she, modal(she, name_of_modal, negation), infinitive(VERBS["work"], to=name_of_modal == "going"))
    )
    assert (pair.source, pair.target) == (english, french)


@pytest.mark.parametrize(
    ("form", "negation", "english", "french"),
    [
        ("was", "", "The laws were signed.", "Les lois ont été signées."),
        ("was", "not", "The laws were not signed.", "Les lois n'ont pas été signées."),
        ("had been", "", "The laws had been signed.", "Les lois avaient été signées."),
        ("will be", "", "The laws will be signed.", "Les lois seront signées."),
        ("must be", "", "The laws must be signed.", "Les lois doivent être signées."),
        ("can be", "not", "The laws cannot be signed.", "Les lois ne peuvent pas être signées."),
    ],
)
def test_the_passive_agrees_in_every_tense(form, negation, english, french):
    laws = a_noun(THE, "law", plural=True)
    pair = phrase(join(laws, passive(laws, VERBS["sign"], form, negation)))
    assert (pair.source, pair.target) == (english, french)


def test_adjectives_behind_be_agree_with_their_subject():
    stories = a_noun(THIS, "story", plural=True)
    pair = phrase(
        join(stories, being(stories, "was", "not"), fixed(say.VERY), described(stories, ADJECTIVES["important"]))
    )
    assert pair.target == "Ces histoires n'étaient pas très importantes."
    we = pronoun("we")
    assert phrase(join(we, being(we, "is"), described(we, ADJECTIVES["happy"]))).target == "Nous sommes heureux."


def test_dates_are_written_and_aligned():
    day, month, year = say.DAYS[2], say.MONTHS[4], say.YEARS[15]
    pair = phrase(on_day(day, month, year))
    assert (pair.source, pair.target) == ("On the third of May 2004.", "Le trois mai 2004.")
    assert linked(pair) == {("the", "Le"), ("third", "trois"), ("May", "mai"), ("2004", "2004"), (".", ".")}
    assert phrase(on_day(say.DAYS[5], month, year)).target == "Le huit mai 2004."
    assert phrase(in_month(say.MONTHS[3], year)).target == "En avril 2004."


def test_if_elides_before_il_but_not_before_elle():
    for word, french in (("he", "S'il travaille."), ("they", "S'ils travaillent."), ("she", "Si elle travaille.")):
        subject = pronoun(word)
        assert phrase(join(fixed(say.IF), subject, verb_phrase(subject, VERBS["work"], "present"))).target == french


def test_a_contraction_is_aligned_with_both_its_parts():
    assert linked(phrase(prepositional(say.OF, a_noun(THE, "king")))) >= {("Of", "Du"), ("the", "Du"), ("king", "roi")}


def test_negation_auxiliary_and_verb_are_aligned():
    pair = doing(pronoun("she"), "sign", "past", a_noun(THE, "law"), negation="not")
    assert pair.target == "Elle n'a pas signé la loi."
    assert linked(pair) == {
        ("She", "Elle"), ("did", "a"), ("not", "n'"), ("not", "pas"), ("sign", "signé"), ("the", "la"), ("law", "loi"), (".", "."),
    }  # fmt: skip


def test_an_article_that_english_does_without_is_unaligned():
    assert linked(phrase(prepositional(say.ON, name("energy")))) == {("On", "Sur"), ("energy", "énergie"), (".", ".")}


def test_it_takes_the_gender_of_its_noun():
    paul, letter = name("Paul"), a_noun(THE, "letter")
    it = Object("it", "la", feminine=True, plural=False)
    again = verb_phrase(paul, VERBS["read"], "past", pronoun=it, preceding=it)
    pair = doing(paul, "write", "past", letter, fixed(say.AND), again)
    assert (pair.source, pair.target) == ("Paul wrote the letter and read it.", "Paul a écrit la lettre et l'a lue.")


def test_the_lecture_sentence_is_the_one_in_the_lectures():
    assert (
        Phrase(
            "The agreement on the European Economic Area was signed in August 1992.",
            "L'accord sur la zone économique européenne a été signé en août 1992.",
            (
                (0, 0),
                (1, 1),
                (2, 2),
                (3, 3),
                (4, 6),
                (5, 5),
                (6, 4),
                (7, 7),
                (7, 8),
                (8, 9),
                (9, 10),
                (10, 11),
                (11, 12),
                (12, 13),
            ),
        )
        == LECTURE_SENTENCE
    )


def test_the_lecture_sentence_is_kept_out_even_when_the_author_writes_it(monkeypatch):
    def lecture():
        agreement = with_more(a_noun(THE, "agreement"), prepositional(say.ON, named(say.AREA)))
        return join(agreement, passive(agreement, VERBS["sign"], "was"), in_month(say.MONTHS[7], say.YEARS[3]))

    assert phrase(lecture()) == LECTURE_SENTENCE
    ordinary = Author.sentence
    turns = iter(range(10**9))
    monkeypatch.setattr(Author, "sentence", lambda self: lecture() if next(turns) % 2 else ordinary(self))
    split = split_of(LECTURE_SENTENCE.target)
    assert LECTURE_SENTENCE not in phrases(split, 50)


def test_the_author_writes_every_part_of_the_lecture_sentence(sample):
    topics = "|".join(" ".join(topic.pairing.english) for topic in say.TOPICS)
    shape = re.compile(rf"[Tt]he \w+ on ({topics}) was \w+ in \w+ \d{{4}}\b")
    assert any(shape.search(pair.source) for pair in sample)
    for part in ("The agreement on", "the European Economic Area", "Area was", " was signed in", "in August 1992"):
        assert any(part in pair.source for pair in sample), part


def test_words_are_split_at_punctuation_and_after_an_apostrophe():
    assert split_words("L'accord n'a pas été signé, aux États-Unis.") == [
        "L'", "accord", "n'", "a", "pas", "été", "signé", ",", "aux", "États-Unis", ".",
    ]  # fmt: skip
    assert split_words("August 1992 .") == ["August", "1992", "."]
    assert split_words("") == []


def test_the_same_english_always_gets_the_same_french_and_alignment(sample):
    known: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {}
    for pair in sample:
        for source, target in ((pair.source, pair.target), (pair.source.lower(), pair.target.lower())):
            assert known.setdefault(source, (target, pair.alignment)) == (target, pair.alignment), source
    assert len(known) < 2 * len(sample)  # some did come twice, so the check had work to do


def test_alignments_stay_within_both_sentences_and_join_the_full_stops(sample):
    for pair in sample[:20_000]:
        source, target = split_words(pair.source), split_words(pair.target)
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in pair.alignment)
        assert pair.alignment[-1] == (len(source) - 1, len(target) - 1)


def test_words_that_are_the_same_in_both_languages_are_aligned_in_order(sample):
    for pair in sample[:5_000]:
        source, target = split_words(pair.source), split_words(pair.target)
        kept = [(i, j) for i, j in pair.alignment if source[i].isdigit() or source[i] == ","]
        assert all(source[i] == target[j] for i, j in kept)
        assert [j for _, j in kept] == sorted(j for _, j in kept)
        assert len(kept) == sum(word.isdigit() or word == "," for word in source)


def test_nearly_every_word_is_aligned_and_only_function_words_are_not(sample):
    alone: Counter[str] = Counter()
    for pair in sample[:10_000]:
        aligned = {j for _, j in pair.alignment}
        alone.update(word.lower() for j, word in enumerate(split_words(pair.target)) if j not in aligned)
    assert set(alone) <= {"le", "la", "les", "l'", "de"}, alone
    idle: Counter[str] = Counter()
    for pair in sample[:10_000]:
        aligned = {i for i, _ in pair.alignment}
        idle.update(word.lower() for i, word in enumerate(split_words(pair.source)) if i not in aligned)
    assert set(idle) <= {"to", "on", "of", "in"}, idle


VOWEL = "[aeiouhâàéèêîôûAEIOUHÂÉÈÊÎÔ]"
ASPIRATED = "(?!Hongrie|huit|onze)"
INFINITIVES = {verb.infinitive for verb in VERBS.values()}


@pytest.mark.parametrize(
    "wrong",
    [
        rf"\b(le|la|je|me|ne|de|que) {ASPIRATED}{VOWEL}",
        r"\bsi ils?\b",
        rf"\b(ce|ma|sa) {VOWEL}",
        rf"\b(un|le|ce|mon|son|notre|votre|leur|chaque) (beau|nouveau|vieux) {VOWEL}",
        rf"\bcet (?!{VOWEL})",
        r"\bde (des|du|un|une)\b",
        r"\bà (des|du)\b",
        r"\b[ldjmnqscu]+' ",
        r"\bpas (un|une|des)\b",
        r"  | ,| \.|\.\.",
    ],
)
def test_no_french_sentence_has_this_mistake(sample, wrong):
    pattern = re.compile(wrong, re.IGNORECASE)
    found = [pair.target for pair in sample if pattern.search(pair.target)]
    assert not found, found[:3]


def test_articles_contract_everywhere_but_before_infinitives(sample):
    for pair in sample:
        for word in re.findall(r"\b(?:de|à) les? (\w+)", pair.target):
            assert word in INFINITIVES, pair.target


def test_english_articles_sound_right(sample):
    for pair in sample:
        assert not re.search(r"\ba (?!uni|use)[aeiouAIO]", pair.source), pair.source
        assert not re.search(r"\ban ([^aeiouAIO]|uni)", pair.source), pair.source


def test_every_article_has_the_gender_and_number_of_the_noun_behind_it(sample):
    masculine = {"le", "un", "ce", "du", "au", "cet"}
    feminine = {"la", "une", "cette", "ma", "sa"}
    plural = {"les", "des", "ces", "aux", "mes", "ses", "nos", "vos", "leurs", "deux", "trois", "plusieurs"}
    forbidden: dict[str, set[str]] = {}
    for noun in NOUNS.values():
        one, many = noun.french
        forbidden[one] = (masculine if noun.feminine else feminine) | (set() if one == many else plural)
        if one != many:
            forbidden[many] = masculine | feminine
    seen: Counter[str] = Counter()
    for pair in sample[:20_000]:
        words = split_words(pair.target)
        for before, word in pairwise(words):
            if word in forbidden:
                seen[word] += 1
                assert before.lower() not in forbidden[word], pair.target
    assert len(seen) == len(forbidden)


def test_lengths_are_well_spread_from_3_to_40_words(sample):
    lengths = [len(split_words(pair.source)) for pair in sample]
    assert min(lengths) == 3
    assert max(lengths) == 40
    shares = [sum(low <= length < low + 10 for length in lengths) / len(lengths) for low in (0, 10, 20, 30)]
    assert all(share > least for share, least in zip(shares, (0.15, 0.3, 0.25, 0.12), strict=True)), shares


def test_each_language_has_a_few_hundred_words(sample):
    for side in ("source", "target"):
        words = Counter(word for pair in sample for word in split_words(getattr(pair, side)))
        assert 250 <= len(words) <= 800, len(words)


def test_the_same_seed_gives_the_same_sentences_and_a_larger_count_more_of_them():
    few = phrases("train", 200, seed=3)
    assert phrases("train", 500, seed=3)[:200] == few
    assert phrases("train", 200, seed=4) != few
    assert phrases("train", 0) == []
    assert len({pair.source for pair in phrases("train", 1_000)}) == 1_000


def test_sentences_do_not_depend_on_the_hash_seed_of_python():
    program = "from saccade.data.builtin.phrasebook.phrases import phrases; print(phrases('test', 40, seed=2))"
    answers = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
        answers.add(run.stdout)
    assert len(answers) == 1


def test_splits_share_no_sentence_in_either_language_for_any_seed():
    train = [pair for seed in (1, 2) for pair in phrases("train", 2_000, seed)]
    valid = [pair for seed in (1, 2) for pair in phrases("valid", 400, seed)]
    test = [pair for seed in (1, 2) for pair in phrases("test", 400, seed)]
    for side in ("source", "target"):
        sentences = [{getattr(pair, side) for pair in split} for split in (train, valid, test)]
        assert not sentences[0] & sentences[1]
        assert not sentences[0] & sentences[2]
        assert not sentences[1] & sentences[2]
    assert all(LECTURE_SENTENCE.source != pair.source for pair in (*train, *valid, *test))


def test_splits_have_the_documented_shares(sample):
    counts = Counter(split_of(pair.target) for pair in sample)
    assert abs(counts["train"] / len(sample) - 6 / 8) < 0.02
    assert abs(counts["valid"] / len(sample) - 1 / 8) < 0.02


def test_an_unknown_split_is_named_in_the_error():
    with pytest.raises(UserError, match=r"'dev'.*train, valid or test"):
        phrases("dev", 1)
