"""Which tokens of a text are read where it is longer than a model can take."""

from dataclasses import dataclass
from typing import Literal

LongTexts = Literal["beginning", "both-ends", "windows"]


@dataclass(frozen=True)
class Reading:
    longest: int | None  # tokens; None: all of any text
    long_texts: LongTexts = "beginning"

    def parts(self, length: int) -> list[list[int]]:
        """The places of the tokens that are read together; several lists where windows go over the whole text.

        Windows overlap by a quarter, and the last one ends with the text. Of both ends the beginning is a third."""
        longest = self.longest
        if longest is None or length <= longest:
            return [list(range(length))]
        if self.long_texts == "beginning":
            return [list(range(longest))]
        if self.long_texts == "both-ends":
            begin = longest // 3
            return [[*range(begin), *range(length - (longest - begin), length)]]
        stride = max(1, longest - longest // 4)
        starts = [*range(0, length - longest, stride), length - longest]
        return [list(range(start, start + longest)) for start in starts]

    def sentence(self) -> str:
        """What is read of a longer text."""
        if self.long_texts == "windows":
            return "all of them are read, in windows that overlap by a quarter (data.long_texts)"
        kept = (
            "their beginning is"
            if self.long_texts == "beginning"
            else "their first third and last two thirds of that are"
        )
        return f"{kept} read (data.long_texts=windows reads all of them)"
