"""Small stories with questions about them: who went where, who carries what. Written by a few rules, so that the sentences that an answer
follows from are known.

    The answer to "Where is the lantern?" needs two sentences: who took it up, and where that person went then.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from saccade.data.questions.exercises import Exercise, Span
from saccade.data.splits import SPLITS, SplitName

PEOPLE = ("Ines", "Tomas", "Wanda", "Rafael", "Yusuf", "Greta", "Milo", "Abena")
PLACES = (
    *("boat house", "winter garden", "kitchen", "attic", "wine cellar", "library", "upper terrace", "stables"),
    *("chapel", "green room", "workshop", "old mill"),
)
THINGS = ("lantern", "silver key", "map", "violin", "basket of apples", "blue jug", "telescope", "ladder")
GOES = ("walked to", "ran to", "went over to", "strolled to", "hurried to")
TAKES = ("picked up", "took", "lifted", "grabbed")
LEAVES = ("put down", "left behind", "dropped")
UNANSWERED = 0.1  # of the questions: about somebody or something that the story does not mention
_SHORTEST, _LONGEST = 4, 12  # sentences


@dataclass
class _Story:
    draw: random.Random
    text: str = ""
    sentences: list[Span] = field(default_factory=list)
    place_of: dict[str, tuple[int, Span]] = field(
        default_factory=dict
    )  # person: the sentence, and where it names the place
    holder_of: dict[str, tuple[int, str, Span]] = field(
        default_factory=dict
    )  # thing: the sentence, who, and where it names them
    left_at: dict[str, tuple[int, int, Span]] = field(
        default_factory=dict
    )  # thing: both sentences, and where the place is named

    def tell(self, sentence: str, words: str) -> tuple[int, Span]:
        """Adds a sentence; returns its number and where these words of it stand in the story."""
        start = len(self.text) + bool(self.text)
        self.text += (" " if self.text else "") + sentence
        self.sentences.append((start, len(self.text)))
        place = start + sentence.index(words)
        return len(self.sentences) - 1, (place, place + len(words))

    def go_on(self) -> None:
        person = self.draw.choice(PEOPLE)
        held = [thing for thing, (_, who, _) in self.holder_of.items() if who == person]
        free = [thing for thing in THINGS if thing not in self.holder_of]
        choice = self.draw.random()
        if person in self.place_of and choice < 0.35 and free:
            thing = self.draw.choice(free)
            number, place = self.tell(f"{person} {self.draw.choice(TAKES)} the {thing}.", person)
            self.holder_of[thing] = number, person, place
            self.left_at.pop(thing, None)
        elif held and choice < 0.5:
            thing = self.draw.choice(held)
            number, _ = self.tell(f"{person} {self.draw.choice(LEAVES)} the {thing}.", person)
            del self.holder_of[thing]
            self.left_at[thing] = number, *self.place_of[person]
        else:
            name = self.draw.choice(PLACES)
            self.place_of[person] = self.tell(f"{person} {self.draw.choice(GOES)} the {name}.", name)

    def ask(self) -> Exercise:
        answered = self.draw.random() >= UNANSWERED
        kinds: list[Callable[[], Exercise | None]] = [self._where_somebody, self._where_something, self._who]
        self.draw.shuffle(kinds)
        for kind in kinds if answered else ():
            exercise = kind()
            if exercise is not None:
                return exercise
        return self._unanswered()

    def _answered(self, question: str, span: Span, *facts: int) -> Exercise:
        answer = self.text[span[0] : span[1]]
        return Exercise(
            question, self.text, (answer,), (span,), tuple(self.sentences[fact] for fact in sorted({*facts}))
        )

    def _where_somebody(self) -> Exercise | None:
        person = self.draw.choice(sorted(self.place_of))
        number, span = self.place_of[person]
        return self._answered(f"Where is {person}?", span, number)

    def _where_something(self) -> Exercise | None:
        thing = self.draw.choice(sorted({*self.holder_of, *self.left_at}) or [""])
        if thing in self.left_at:
            number, moved, span = self.left_at[thing]
            return self._answered(f"Where is the {thing}?", span, number, moved)
        if thing in self.holder_of:
            number, person, _ = self.holder_of[thing]
            moved, span = self.place_of[person]
            return self._answered(f"Where is the {thing}?", span, number, moved)
        return None

    def _who(self) -> Exercise | None:
        if not self.holder_of:
            return None
        thing = self.draw.choice(sorted(self.holder_of))
        number, _, span = self.holder_of[thing]
        return self._answered(f"Who carries the {thing}?", span, number)

    def _unanswered(self) -> Exercise:
        somebody = [person for person in PEOPLE if person not in self.place_of]
        something = [thing for thing in THINGS if thing not in self.text]
        if somebody and (not something or self.draw.random() < 0.5):
            return Exercise(f"Where is {self.draw.choice(somebody)}?", self.text)
        return Exercise(f"Who carries the {self.draw.choice(something or ['moon'])}?", self.text)


def stories(split: SplitName, count: int) -> list[Exercise]:
    """Different stories for each part, the same ones every time."""
    draw = random.Random(f"stories {SPLITS.index(split)}")
    exercises = []
    for _ in range(count):
        story = _Story(draw)
        for _ in range(draw.randint(_SHORTEST, _LONGEST)):
            story.go_on()
        exercises.append(story.ask())
    return exercises
