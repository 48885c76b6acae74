"""The nine alignment scores: how well does a query fit each key?

| name       | align(s, h)          | from                                   |
|------------|----------------------|----------------------------------------|
| dot        | sᵀ h                 | Luong 2015                             |
| scaled-dot | sᵀ h / √n            | Vaswani 2017                           |
| additive   | vᵀ tanh(W [s; h])    | Bahdanau 2014                          |
| general    | sᵀ W h               | Luong 2015                             |
| concat     | w [s; h]             | the lectures; see the class for its limit |
| perceptron | vᵀ tanh(W s + U h)   | Bahdanau 2014, with W split in two     |
| cosine     | β cos(s, h), β ≥ 0   | Graves 2014, content-based addressing  |
| location   | W s, no key          | Luong 2015                             |
| trilinear  | w [s; h; s ∘ h]      | Seo 2016                               |

A score is used in two steps, so that what depends on the keys alone is computed once per source:

    prepared = score.prepare(key)            # (..., K, key size) -> (..., K, as the score prepares it)
    scores = score(query, prepared)          # (..., Q, query size) -> (..., Q, K)

With `heads=H` every parameter has a leading head axis and inputs are (B, H, length, size): each head has a score of its own.

Axis legend: B batch, H heads, Q queries, K keys, A hidden size of a score.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Score(nn.Module):
    """One alignment score. `name` is its name in YAML."""

    name: ClassVar[str]

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__()
        if query_size < 1 or (key_size is not None and key_size < 1):
            raise ValueError(f"queries and keys must have at least one feature; got sizes {query_size} and {key_size}")
        self.query_size = query_size
        self.key_size = query_size if key_size is None else key_size
        self.heads = heads

    def prepare(self, key: Tensor) -> Tensor:
        """What depends on the keys alone."""
        return key

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        heads = "" if self.heads is None else f", heads={self.heads}"
        return f"query_size={self.query_size}, key_size={self.key_size}{heads}"

    def _weight(self, rows: int, columns: int) -> nn.Parameter:
        """A matrix (one per head) for `x @ weight`, drawn like torch's own linear layers."""
        shape = (rows, columns) if self.heads is None else (self.heads, rows, columns)
        return nn.Parameter(torch.empty(shape).uniform_(-(rows**-0.5), rows**-0.5))

    def _require_equal_sizes(self) -> None:
        if self.query_size != self.key_size:
            raise ValueError(
                f"the {self.name} score multiplies query and key directly, so their sizes must be equal; got query size {self.query_size} "
                f"and key size {self.key_size}: project one of them first, or use the general or additive score"
            )


class DotProductScore(Score):
    """A score of the form scale · f(query)ᵀ g(key): it can run on the fused kernel, which never holds the weights in memory."""

    scale: float = 1.0

    def project_query(self, query: Tensor) -> Tensor:
        return query

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        projected = self.project_query(query)
        if self.scale != 1.0:
            projected = projected * self.scale
        return projected @ prepared.transpose(-2, -1)  # (..., Q, D) @ (..., D, K) -> (..., Q, K)


class Dot(DotProductScore):
    """sᵀ h"""

    name = "dot"

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__(query_size, key_size, heads=heads)
        self._require_equal_sizes()


class ScaledDot(DotProductScore):
    """sᵀ h / √n: the scale keeps the variance of the scores near 1 as the size n grows."""

    name = "scaled-dot"

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__(query_size, key_size, heads=heads)
        self._require_equal_sizes()
        self.scale = query_size**-0.5


class General(DotProductScore):
    """sᵀ W h, also called multiplicative."""

    name = "general"

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__(query_size, key_size, heads=heads)
        self.weight = self._weight(self.key_size, self.query_size)

    def prepare(self, key: Tensor) -> Tensor:
        return key @ self.weight  # (..., K, key size) -> (..., K, query size)


class Trilinear(DotProductScore):
    """w [s; h; s ∘ h]. As one dot product, with the three parts of w: [w₃ ∘ s; 1; w₁ s]ᵀ [h; w₂ h; 1]"""

    name = "trilinear"

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__(query_size, key_size, heads=heads)
        self._require_equal_sizes()
        self.query_weight = self._weight(self.query_size, 1)
        self.key_weight = self._weight(self.key_size, 1)
        self.both_weight = self._weight(self.query_size, 1)

    def project_query(self, query: Tensor) -> Tensor:
        own = query @ self.query_weight  # (..., Q, 1)
        return torch.cat((query * self.both_weight.transpose(-2, -1), torch.ones_like(own), own), dim=-1)

    def prepare(self, key: Tensor) -> Tensor:
        own = key @ self.key_weight  # (..., K, 1)
        return torch.cat((key, own, torch.ones_like(own)), dim=-1)


class Cosine(DotProductScore):
    """β cos(s, h). A cosine is bounded by 1, too flat for a softmax over many keys, so its sharpness β = softplus(b) is learned."""

    name = "cosine"
    epsilon: ClassVar[float] = 1e-8
    initial_sharpness: ClassVar[float] = 10.0

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__(query_size, key_size, heads=heads)
        self._require_equal_sizes()
        before_softplus = torch.tensor(self.initial_sharpness).expm1().log().item()
        self.sharpness = nn.Parameter(torch.full((1, 1) if heads is None else (heads, 1, 1), before_softplus))

    def project_query(self, query: Tensor) -> Tensor:
        return self._unit(query) * F.softplus(self.sharpness)

    def prepare(self, key: Tensor) -> Tensor:
        return self._unit(key)

    def _unit(self, vector: Tensor) -> Tensor:
        # Half precision has neither room for the sum of squares nor a number as small as epsilon.
        wide = vector.to(torch.promote_types(vector.dtype, torch.float32))
        return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + self.epsilon)).to(vector.dtype)


class HiddenLayerScore(Score):
    """vᵀ tanh(f(query) + g(key)): each pair of query and key has a hidden layer of its own, B·Q·K·A numbers if all are held."""

    v: nn.Parameter

    def __init__(
        self, query_size: int, key_size: int | None = None, *, heads: int | None = None, hidden: int | None = None
    ):
        super().__init__(query_size, key_size, heads=heads)
        self.hidden = self.query_size if hidden is None else hidden
        if self.hidden < 1:
            raise ValueError(f"the hidden layer of a score must have at least one unit; got {self.hidden}")

    @property
    def query_matrix(self) -> Tensor:
        raise NotImplementedError

    def project_query(self, query: Tensor) -> Tensor:
        return query @ self.query_matrix

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        hidden = torch.tanh(self.project_query(query).unsqueeze(-2) + prepared.unsqueeze(-3))  # (..., Q, K, A)
        return torch.einsum("...qka,...a->...qk", hidden, self.v.squeeze(-1))


class Additive(HiddenLayerScore):
    """vᵀ tanh(W [s; h])"""

    name = "additive"

    def __init__(
        self, query_size: int, key_size: int | None = None, *, heads: int | None = None, hidden: int | None = None
    ):
        super().__init__(query_size, key_size, heads=heads, hidden=hidden)
        self.weight = self._weight(self.query_size + self.key_size, self.hidden)
        self.v = self._weight(self.hidden, 1)

    @property
    def query_matrix(self) -> Tensor:
        return self.weight[..., : self.query_size, :]

    def prepare(self, key: Tensor) -> Tensor:
        return key @ self.weight[..., self.query_size :, :]


class Perceptron(HiddenLayerScore):
    """vᵀ tanh(W s + U h)"""

    name = "perceptron"

    def __init__(
        self, query_size: int, key_size: int | None = None, *, heads: int | None = None, hidden: int | None = None
    ):
        super().__init__(query_size, key_size, heads=heads, hidden=hidden)
        self.query_weight = self._weight(self.query_size, self.hidden)
        self.key_weight = self._weight(self.key_size, self.hidden)
        self.v = self._weight(self.hidden, 1)

    @property
    def query_matrix(self) -> Tensor:
        return self.query_weight

    def prepare(self, key: Tensor) -> Tensor:
        return key @ self.key_weight


class Concat(Score):
    """w [s; h] without a hidden layer.

    The part of w that meets s adds the same number to the score of every key, and a softmax drops what all keys share: the weights
    cannot depend on the query. Every step looks at the same place. It is here because the lectures list it, and to show this.
    """

    name = "concat"

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None):
        super().__init__(query_size, key_size, heads=heads)
        self.query_weight = self._weight(self.query_size, 1)
        self.key_weight = self._weight(self.key_size, 1)

    def prepare(self, key: Tensor) -> Tensor:
        return key @ self.key_weight  # (..., K, key size) -> (..., K, 1)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ self.query_weight + prepared.transpose(-2, -1)  # (..., Q, 1) + (..., 1, K) -> (..., Q, K)


class Location(Score):
    """W s, with one row of W per source position: where to look depends on the target side alone."""

    name = "location"

    def __init__(self, query_size: int, key_size: int | None = None, *, heads: int | None = None, longest: int = 512):
        super().__init__(query_size, key_size, heads=heads)
        self.longest = longest
        self.weight = self._weight(self.query_size, longest)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        keys = prepared.shape[-2]
        if keys > self.longest:
            raise ValueError(
                f"this location score takes sources of at most {self.longest} positions; got {keys}: "
                f"create it with longest={keys} or more, or shorten the source"
            )
        return query @ self.weight[..., :keys]


def all_scores() -> dict[str, type[Score]]:
    """Every score of this file by its name in YAML."""
    return {
        cls.name: cls
        for cls in globals().values()
        if isinstance(cls, type) and issubclass(cls, Score) and "name" in vars(cls)
    }
