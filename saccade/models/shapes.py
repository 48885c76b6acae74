"""What a model must know of the data before it is built. Each asks for what it needs; `build(config, shapes)` is the one signature."""

from dataclasses import dataclass

from saccade.data.image_shape import ImageShape


@dataclass(frozen=True)
class Shapes:
    image: ImageShape | None = None
    classes: int = 0
    source_words: int = 0  # of the vocabulary that is read
    target_words: int = 0  # of the vocabulary that is written
    letters: int = 0  # that words are spelled with, where they are read too
    spans: bool = False  # whether the answer is a part of what is read: its first and its last position

    def require_image(self) -> ImageShape:
        if self.image is None:
            raise ValueError("this model reads images: give Shapes(image=...)")
        return self.image
