"""The `train` section of a recipe."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.kinds import Means
from saccade.config.recipe import Config

Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Beta, Beta], Means("two numbers in brackets, such as [0.9, 0.98], each at least 0 and below 1")]


class TrainConfig(Config):
    steps: int = Field(2000, ge=1, description="stop after this many updates")
    minutes: float | None = Field(
        None,
        gt=0,
        description="stop after so many minutes of wall time, if steps do not end it first; warm-ups get a tenth of them at most",
    )
    seed: int = Field(1, ge=0, lt=2**63)
    threads: int | None = Field(None, ge=1, description="threads of torch; all cores unless given")
    optimizer: Literal["adam", "adamw", "muon"] = Field(
        "adamw", description="muon: orthogonal updates for the matrices inside the model, adamw for the rest"
    )
    learning_rate: float = Field(1e-3, gt=0, description="the highest of the schedule")
    schedule: Literal["constant", "cosine", "inverse-square-root"] = "cosine"
    warmup_steps: int = Field(0, ge=0, description="updates until the highest learning rate is reached")
    betas: Betas = Field((0.9, 0.98), description="how slowly the averages of gradients and of their squares change")
    epsilon: float = Field(1e-9, gt=0)
    weight_decay: float = Field(
        0.0, ge=0, description="of weights with two axes or more; biases, norms and positions are left alone"
    )
    dropout_epochs: int = Field(
        0,
        ge=0,
        description="dropout rises to the model's over so many epochs: an example that was seen once is not memorised yet",
    )
    max_grad_norm: float | None = Field(1.0, gt=0, description="gradients with a larger norm are scaled down to it")
    gradient_accumulation: int = Field(1, ge=1, description="batches per update")
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    log_every: int = Field(50, ge=1)
    validate_every: int = Field(500, ge=1)
    checkpoint_every: int = Field(500, ge=1)
    patience: int | None = Field(None, ge=1, description="stop after so many validations without a better one")
    average: int = Field(0, ge=0, le=20, description="average the weights of so many last checkpoints at the end")
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="validate and keep an exponential moving average of the weights with this decay, such as 0.999",
    )

    @model_validator(mode="after")
    def _one_average(self) -> "TrainConfig":
        if self.ema is not None and self.average > 1:
            raise ValueError(
                f"ema = {self.ema:g} and average = {self.average} both average weights: leave one of them out"
            )
        return self
