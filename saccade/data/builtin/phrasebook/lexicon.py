"""The words of the built-in corpus: English beside French, with gender, forms and alignment.

The tables are written for people and read once at import. They hold only what a rule cannot give: `woman/women` (plural),
`white blanc/blanche` (feminine), `write/wrote/written` (past and participle). Entries are compared by identity.

Forms of French verbs stand in the order of the persons: je, il or elle, nous, vous, ils. Verbs of action have no present for
nous and vous (two forms more for each verb, hardly ever read); author.py gives these persons other tenses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Pairing(NamedTuple):
    """A fixed expression: the French words, each with the numbers of the English words it renders."""

    english: tuple[str, ...]
    french: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Name:
    """A person, city, country, institution or subject of debate. The French has its article where it takes one."""

    pairing: Pairing
    feminine: bool
    plural: bool


@dataclass(frozen=True, eq=False)
class Noun:
    english: tuple[str, str]  # singular, plural
    french: tuple[str, str]
    feminine: bool


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    french: tuple[str, ...]  # masculine, feminine, masculine plural, feminine plural, masculine before a vowel


@dataclass(frozen=True, eq=False)
class Determiner:
    # masculine, feminine, masculine before a vowel, feminine before a vowel; () if there is none
    singular: tuple[Pairing, ...]
    plural: tuple[Pairing, ...]  # masculine, feminine; () if there is none


@dataclass(frozen=True, eq=False)
class Verb:
    english: tuple[str, str, str, str]  # write, writes, wrote, written
    infinitive: str
    present: tuple[str, ...]  # je, il, nous, vous, ils
    participle: str
    moves: bool  # compound past with être
    imperfect: tuple[str, ...]  # only verbs of state have it: it renders their English past


@dataclass(frozen=True, eq=False)
class Group:
    """Nouns that can stand in the same places, and what can be said of them."""

    nouns: tuple[Noun, ...]
    predicate: tuple[Adjective, ...]  # "the law is very useful"
    verbs: tuple[Verb, ...]  # what is done to them
    before: tuple[Adjective, ...]  # in front of the noun in both languages
    quality: tuple[Adjective, ...] = ()  # behind the noun in French, after the kind: "décision politique importante"
    kind: tuple[Adjective, ...] = ()  # behind the noun in French, next to it
    owned: bool = False  # "my letter", but not "my parliament"


def pairing(english: str, french: str) -> Pairing:
    """`année/1 dernière/0`: the numbers count English words. Without any number every word goes with every word."""
    source = tuple(english.split())
    everything = () if "/" in french else tuple(range(len(source)))
    words = (word.partition("/") for word in french.split())
    return Pairing(source, tuple((text, tuple(map(int, at.split(","))) if at else everything) for text, _, at in words))


def entries(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.replace("\n", ",").split(",") if entry.strip()]


def nouns(table: str) -> tuple[Noun, ...]:
    return tuple(
        Noun(_plural(en, english_plural), _plural(fr, french_plural), g == "f") for en, fr, g in entries(table)
    )


def names(table: str) -> tuple[Name, ...]:
    """One a line: English = French = m, f, mp or fp."""
    lines = [[part.strip() for part in line.split("=")] for line in table.splitlines() if line.strip()]
    return tuple(Name(pairing(en, fr), gender[0] == "f", gender[1:] == "p") for en, fr, gender in lines)


def adjectives(table: str) -> dict[str, Adjective]:
    return {english: Adjective(english, adjective_forms(*french.split("/"))) for english, french in entries(table)}


def determiner(singular: str, french: str, plural: str, french_plural: str) -> Determiner:
    """Singular: masculine/feminine/the same two before a vowel. Plural: masculine/feminine. The first stands in for missing ones."""
    one, many = french.split("/"), french_plural.split("/")
    return Determiner(
        tuple(pairing(singular, _in_order(singular, form)) for form in (one * 4)[:4] if form),
        tuple(pairing(plural, _in_order(plural, form)) for form in (many * 2)[:2] if form),
    )


def verbs(table: str) -> dict[str, Verb]:
    """English, infinitive, then for irregular verbs present and participle, and the imperfect of verbs of state."""
    by_infinitive: dict[str, Verb] = {}
    for english, infinitive, *rest in entries(table):
        moves = rest[-1:] == ["être"]
        irregular = rest[: len(rest) - moves]
        stem = infinitive.removesuffix("er")
        present = irregular[0].split("/") if irregular else [stem + "e", stem + "e", stem + "ent"]
        if len(present) == 3:
            present[2:2] = ["", ""]
        participle = irregular[1] if irregular[1:] else stem + "é"
        imperfect = tuple(irregular[2].split("/")) if irregular[2:] else ()
        forms = english_verb(*english.split("/"))
        by_infinitive[forms[0]] = Verb(forms, infinitive, tuple(present), participle, moves, imperfect)
    return by_infinitive


def english_plural(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def english_verb(base: str, past: str = "", participle: str = "") -> tuple[str, str, str, str]:
    regular = base + "d" if base.endswith("e") else base[:-1] + "ied" if base.endswith("ry") else base + "ed"
    third = base + "es" if base == "go" else english_plural(base)
    return base, third, past or regular, participle or past or regular


def french_plural(word: str) -> str:
    if word.endswith(("s", "x")):
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + ("x" if word.endswith("eau") else "s")


def adjective_forms(masculine: str, feminine: str = "", before_vowel: str = "") -> tuple[str, ...]:
    if not feminine:
        endings = {"eux": "euse", "en": "enne", "el": "elle", "er": "ère", "e": "e"}
        ending = next((end for end in endings if masculine.endswith(end)), "")
        feminine = masculine[: len(masculine) - len(ending)] + endings[ending] if ending else masculine + "e"
    return masculine, feminine, french_plural(masculine), feminine + "s", before_vowel or masculine


def _plural(word: str, rule: Callable[[str], str]) -> tuple[str, str]:
    singular, _, plural = word.partition("/")
    return singular, plural or rule(singular)


def _in_order(english: str, french: str) -> str:
    """Word for word where both have two words ("all the" - "tous les"), else all with all."""
    words = french.split()
    paired = len(words) == len(english.split()) == 2
    return f"{words[0]}/0 {words[1]}/1" if paired else french


THE = determiner("the", "le/la", "the", "les")
A = determiner("a", "un/une", "some", "des")
THIS = determiner("this", "ce/cette/cet/cette", "these", "ces")
EVERY = determiner("every", "chaque", "", "")
COUNTS = (
    determiner("", "", "two", "deux"),
    determiner("", "", "three", "trois"),
    determiner("", "", "several", "plusieurs"),
    determiner("", "", "many", "beaucoup de"),
    determiner("", "", "all the", "tous les/toutes les"),
)
OWNERS = (
    determiner("my", "mon/ma/mon/mon", "my", "mes"),
    determiner("his", "son/sa/son/son", "his", "ses"),
    determiner("her", "son/sa/son/son", "her", "ses"),
    determiner("our", "notre", "our", "nos"),
    determiner("your", "votre", "your", "vos"),
    determiner("their", "leur", "their", "leurs"),
)

ADJECTIVES = adjectives("""
    big grand, small petit, new nouveau/nouvelle/nouvel, old vieux/vieille/vieil, beautiful beau/belle/bel, good bon/bonne
    long long/longue, young jeune, former ancien
    European européen, economic économique, political politique, international international, national national
    French français, German allemand, Italian italien, Spanish espagnol
    important important, difficult difficile, secret secret/secrète, interesting intéressant, useful utile
    modern moderne, expensive cher, red rouge, black noir, white blanc/blanche
    famous célèbre, intelligent intelligent, happy heureux, tired fatigué
""")
# These compare with "more"; the others, with endings of their own, stay out of comparisons.
COMPARED = frozenset(
    ["important", "difficult", "interesting", "useful", "modern", "expensive", "famous", "intelligent"]
)

VERBS = verbs("""
    sign signer, adopt adopter, reject rejeter rejette/rejette/rejettent, prepare préparer
    write/wrote/written écrire écris/écrit/écrivent écrit, read/read lire lis/lit/lisent lu, publish publier
    give/gave/given donner, show/showed/shown montrer, send/sent envoyer envoie/envoie/envoient
    buy/bought acheter achète/achète/achètent, sell/sold vendre vends/vend/vendent vendu, find/found trouver
    build/built construire construis/construit/construisent construit, visit visiter, love aimer
    meet/met rencontrer, thank remercier, help aider, invite inviter
    criticise critiquer, support soutenir soutiens/soutient/soutiennent soutenu
    sing/sang/sung chanter, work travailler, sleep/slept dormir dors/dort/dorment dormi, vote voter
    speak/spoke/spoken parler, dance danser
    arrive arriver être, leave/left partir pars/part/partent parti être, stay rester être
    go/went/gone aller vais/va/vont allé être, return revenir reviens/revient/reviennent revenu être
    decide décider, refuse refuser, try essayer essaie/essaie/essaient
    want vouloir veux/veut/voulons/voulez/veulent voulu voulais/voulait/voulions/vouliez/voulaient
    think/thought penser pense/pense/pensons/pensez/pensent, know/knew/known savoir sais/sait/savons/savez/savent su
    believe croire crois/croit/croyons/croyez/croient cru, say/said dire dis/dit/disons/dites/disent dit
    hope espérer espère/espère/espérons/espérez/espèrent, announce annoncer, explain expliquer
""")


def verbs_named(words: str) -> tuple[Verb, ...]:
    return tuple(VERBS[word] for word in words.split())


def adjectives_named(words: str) -> tuple[Adjective, ...]:
    return tuple(ADJECTIVES[word] for word in words.split())


PEOPLES = adjectives_named("French German Italian Spanish")
MEETING = verbs_named("meet thank help invite criticise support")
LEADERS = Group(
    nouns("president président m, director directeur m, member membre m, representative représentant m"),
    before=adjectives_named("new old young former"),
    quality=adjectives_named("famous intelligent"),
    kind=PEOPLES,
    predicate=adjectives_named("happy tired famous intelligent"),
    verbs=MEETING,
)
OFFICES = Group(
    nouns("minister ministre m, ambassador ambassadeur m, judge juge m, mayor maire m, king roi m, queen reine f"),
    before=adjectives_named("new old young former"),
    quality=adjectives_named("famous intelligent"),
    kind=PEOPLES,
    predicate=adjectives_named("happy tired famous intelligent"),
    verbs=MEETING,
)
FOLK = Group(
    nouns("""
        woman/women femme f, man/men homme m, girl fille f, boy garçon m, child/children enfant m, doctor médecin m
        nurse infirmière f, teacher professeur m, student étudiant m, singer chanteuse f, actress actrice f
        lawyer avocat m, farmer agriculteur m"""),
    before=adjectives_named("young"),
    quality=adjectives_named("famous intelligent happy tired"),
    kind=PEOPLES,
    predicate=adjectives_named("happy tired intelligent"),
    verbs=MEETING,
)
KIN = Group(
    nouns("sister sœur f, brother frère m, aunt tante f, uncle oncle m, friend ami m, neighbour voisin m"),
    before=adjectives_named("old"),
    quality=adjectives_named("famous"),
    predicate=adjectives_named("happy tired intelligent"),
    verbs=MEETING,
    owned=True,
)
BODIES = Group(
    nouns("""
        committee comité m, council conseil m, government gouvernement m, parliament parlement m, bank banque f
        company entreprise f, court tribunal m, association association f, team équipe f, university université f"""),
    before=adjectives_named("new big small old"),
    quality=adjectives_named("important"),
    kind=(*PEOPLES, *adjectives_named("European international national")),
    predicate=adjectives_named("important useful"),
    verbs=verbs_named("criticise support help thank"),
)
PAPERS = Group(
    nouns("""
        agreement accord m, treaty traité m, contract contrat m, law loi f, decision décision f, proposal proposition f
        resolution résolution f, project projet m"""),
    before=adjectives_named("new good old"),
    quality=adjectives_named("important difficult secret"),
    kind=adjectives_named("European economic political international national French German"),
    predicate=adjectives_named("important difficult useful"),
    verbs=verbs_named("sign adopt reject prepare"),
)
BILATERAL = PAPERS.nouns[:3]  # what there can be between two countries
TEXTS = Group(
    nouns("""
        letter lettre f, report rapport m, article article m, book livre m, poem poème m, story histoire f
        answer réponse f, speech discours m"""),
    before=adjectives_named("new good old long beautiful"),
    quality=adjectives_named("important interesting secret"),
    kind=adjectives_named("French Italian Spanish political"),
    predicate=adjectives_named("important interesting difficult long"),
    verbs=verbs_named("write read publish"),
    owned=True,
)
THINGS = Group(
    nouns("""
        car voiture f, boat bateau m, bicycle vélo m, machine machine f, picture tableau m, key clé f
        plane avion m, dress robe f"""),
    before=adjectives_named("big small new old beautiful"),
    kind=adjectives_named("red black white"),
    predicate=adjectives_named("expensive beautiful"),
    verbs=verbs_named("buy sell find"),
    owned=True,
)
BUILDINGS = Group(
    nouns("""
        house maison f, church église f, school école f, hospital hôpital m, museum musée m, library bibliothèque f
        station gare f"""),
    before=adjectives_named("big small new old beautiful"),
    quality=adjectives_named("modern famous"),
    kind=adjectives_named("white French Italian"),
    predicate=adjectives_named("modern famous beautiful"),
    verbs=verbs_named("build visit buy"),
)
OUTDOORS = Group(
    nouns("garden jardin m, park parc m, forest forêt f, village village m, city ville f, market marché m"),
    before=adjectives_named("big small old beautiful"),
    quality=adjectives_named("famous"),
    predicate=adjectives_named("famous beautiful"),
    verbs=verbs_named("visit love"),
)
