"""The fixed expressions of the built-in corpus: names, dates, times, pronouns, prepositions and connecting words."""

from typing import NamedTuple

from .lexicon import Name, Pairing, entries, names, pairing


def _unchanged(words: str, gender: str) -> tuple[Name, ...]:
    return names("\n".join(f"{word} = {word} = {gender}" for word in words.split()))


GIRLS = _unchanged("Marie Anna Sophie Claire Alice Julie", "f")
BOYS = _unchanged("Pierre Paul Thomas Antoine Nicolas Olivier", "m")
SURNAMES = _unchanged("Martin Bernard Dubois Laurent", "m")

CITIES = names("""
    Paris = Paris = m
    Rome = Rome = f
    Berlin = Berlin = m
    Madrid = Madrid = m
    London = Londres = m
    Vienna = Vienne = f
    Brussels = Bruxelles = f
    Athens = Athènes = f
    Geneva = Genève = f
""")
COUNTRIES = names("""
    France = la France/0 = f
    Spain = la Espagne/0 = f
    Italy = la Italie/0 = f
    Germany = la Allemagne/0 = f
    Belgium = la Belgique/0 = f
    Hungary = la Hongrie/0 = f
    Canada = le Canada/0 = m
    Japan = le Japon/0 = m
    Portugal = le Portugal/0 = m
    the United States = les/0 États-Unis/1,2 = mp
    the Netherlands = les/0 Pays-Bas/1 = mp
""")
INSTITUTIONS = names("""
    the European Union = la/0 Union/2 européenne/1 = f
    the European Commission = la/0 Commission/2 européenne/1 = f
    the European Parliament = le/0 Parlement/2 européen/1 = m
    the World Bank = la/0 Banque/2 mondiale/1 = f
    the Security Council = le/0 Conseil/2 de sécurité/1 = m
    the Red Cross = la/0 Croix-Rouge/1,2 = f
""")


def _alliances() -> tuple[Name, ...]:
    """ "the European Economic Area" and its like: three words that French says in the opposite order, in every combination, so that the
    words and their order must be learned and not one name."""
    regions = ("European européen européenne", "African africain africaine", "American américain américaine")
    kinds = ("Economic économique", "Political politique", "Monetary monétaire", "Scientific scientifique")
    nouns = ("Area la zone f", "Community la communauté f", "Forum le forum m")
    lines = []
    for noun, article, french, gender in map(str.split, nouns):
        for kind, french_kind in map(str.split, kinds):
            for region, *forms in map(str.split, regions):
                french_region = forms[gender == "f"]
                words = f"{article}/0 {french}/3 {french_kind}/2 {french_region}/1"
                lines.append(f"the {region} {kind} {noun} = {words} = {gender}")
    return names("\n".join(lines))


ALLIANCES = _alliances()
AREA = ALLIANCES[0]
TOPICS = (
    *ALLIANCES,
    *names("""
    agriculture = la agriculture/0 = f
    trade = le commerce/0 = m
    energy = la énergie/0 = f
    education = la éducation/0 = f
    peace = la paix/0 = f
    public health = la santé/1 publique/0 = f
    human rights = les droits/1 de/0 la homme/0 = mp
    the climate = le/0 climat/1 = m
    the economy = la/0 économie/1 = f
    the environment = le/0 environnement/1 = m
""")
    * 3,  # alliances are half of what agreements are about
)


def _paired(table: str) -> tuple[Pairing, ...]:
    return tuple(pairing(*entry) for entry in entries(table))


MONTHS = _paired("""
    January janvier, February février, March mars, April avril, May mai, June juin, July juillet, August août
    September septembre, October octobre, November novembre, December décembre
""")
# French counts the days after the first with plain numbers; "le huit" and "le onze" keep their article whole.
DAYS = _paired("""
    first premier, second deux, third trois, fourth quatre, fifth cinq, eighth huit, tenth dix, eleventh onze
    twelfth douze, twentieth vingt
""")
YEARS = _paired("\n".join(f"{year} {year}" for year in range(1989, 2009)))

PAST_TIMES = (
    pairing("yesterday", "hier"),
    pairing("last year", "la année/1 dernière/0"),
    pairing("last week", "la semaine/1 dernière/0"),
    pairing("last month", "le mois/1 dernier/0"),
)
PRESENT_TIMES = (
    pairing("every day", "tous/0 les jours/1"),
    pairing("every week", "chaque/0 semaine/1"),
    pairing("in the evening", "le/1 soir/2"),
)
FUTURE_TIMES = (
    pairing("tomorrow", "demain"),
    pairing("next year", "la année/1 prochaine/0"),
    pairing("next week", "la semaine/1 prochaine/0"),
)
OPENINGS = (
    pairing("however", "cependant"),
    pairing("unfortunately", "malheureusement"),
    pairing("of course", "bien sûr"),
    pairing("in the end", "à/0 la/1 fin/2"),
)
PRESENT_ADVERBS = (pairing("often", "souvent"), pairing("always", "toujours"), pairing("also", "aussi"))
PAST_ADVERBS = (pairing("often", "souvent"), pairing("finally", "enfin"), pairing("also", "aussi"))

AND = pairing("and", "et")
BUT = pairing("but", "mais")
SO = pairing("so", "donc")
BECAUSE = pairing("because", "parce que")
WHEN = pairing("when", "quand")
IF = pairing("if", "si")
THAT = pairing("that", "que")
WHO = pairing("who", "qui")
WHICH = pairing("which", "qui")
WHOM = pairing("whom", "que")
WHERE = pairing("where", "où")
COMMA = pairing(",", ",")

OF = pairing("of", "de")
FROM = pairing("from", "de")
TO = pairing("to", "à")
IN = pairing("in", "dans")
ON = pairing("on", "sur")
BY = pairing("by", "par")
WITH = pairing("with", "avec")
FOR = pairing("for", "pour")
NEAR = pairing("near", "près de")
BEHIND = pairing("behind", "derrière")
IN_FRONT_OF = pairing("in front of", "devant")
BETWEEN = pairing("between", "entre")
VERY = pairing("very", "très")
MORE = pairing("more", "plus")
THAN = pairing("than", "que")


class Subject(NamedTuple):
    """A personal pronoun before the verb. `person` counts je, il or elle, nous, vous, ils from 0."""

    pairing: Pairing
    person: int
    feminine: bool


class Object(NamedTuple):
    """A personal pronoun as object: English behind the verb, French in front of it; `feminine`, `plural` for the participle."""

    english: str
    french: str
    feminine: bool
    plural: bool


# Whoever speaks is a man, whoever is spoken to are several men, "they" are "ils": the English does not tell.
SUBJECTS = (
    Subject(pairing("I", "je"), 0, False),
    Subject(pairing("he", "il"), 1, False),
    Subject(pairing("she", "elle"), 1, True),
    Subject(pairing("we", "nous"), 2, False),
    Subject(pairing("you", "vous"), 3, False),
    Subject(pairing("they", "ils"), 4, False),
)
# "it" and "them" as direct objects always stand for a noun said before and take its gender.
DIRECT = (
    Object("me", "me", False, False),
    Object("him", "le", False, False),
    Object("her", "la", True, False),
    Object("us", "nous", False, True),
    Object("you", "vous", False, True),
)
INDIRECT = (
    Object("me", "me", False, False),
    Object("him", "lui", False, False),
    Object("her", "lui", True, False),
    Object("us", "nous", False, True),
    Object("you", "vous", False, True),
    Object("them", "leur", False, True),
)
