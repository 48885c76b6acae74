"""The papers' equations as loops over numbers: slow, and short enough to check by eye.

Every function also takes complex numbers, so that `derivative` can differentiate it to full precision: for an analytic function
f(x + ih) = f(x) + ih f'(x) + O(h²), and with h = 1e-30 nothing is lost to a difference of close numbers.
"""

import math

import numpy as np

COSINE_EPSILON = 1e-8


def _dot(s, h):
    return sum(a * b for a, b in zip(s, h, strict=True))


def _softplus(x):
    return np.log(1 + np.exp(x))


def _additive(s, h, k, p):
    both = [*s, *h]
    hidden = [np.tanh(sum(p["weight"][i][a] * both[i] for i in range(len(both)))) for a in range(len(p["v"]))]
    return sum(p["v"][a][0] * hidden[a] for a in range(len(hidden)))


def _perceptron(s, h, k, p):
    total = 0.0
    for a in range(len(p["v"])):
        from_query = sum(s[i] * p["query_weight"][i][a] for i in range(len(s)))
        from_key = sum(h[i] * p["key_weight"][i][a] for i in range(len(h)))
        total = total + p["v"][a][0] * np.tanh(from_query + from_key)
    return total


def _general(s, h, k, p):
    return sum(s[i] * p["weight"][j][i] * h[j] for i in range(len(s)) for j in range(len(h)))


def _concat(s, h, k, p):
    w = [row[0] for row in p["query_weight"]] + [row[0] for row in p["key_weight"]]
    return _dot(w, [*s, *h])


def _cosine(s, h, k, p):
    lengths = np.sqrt(_dot(s, s) + COSINE_EPSILON) * np.sqrt(_dot(h, h) + COSINE_EPSILON)
    return _softplus(p["sharpness"][0][0]) * _dot(s, h) / lengths


def _trilinear(s, h, k, p):
    w = [row[0] for name in ("query_weight", "key_weight", "both_weight") for row in p[name]]
    return _dot(w, [*s, *h, *(a * b for a, b in zip(s, h, strict=True))])


SCORES = {
    "dot": lambda s, h, k, p: _dot(s, h),
    "scaled-dot": lambda s, h, k, p: _dot(s, h) / math.sqrt(len(s)),
    "additive": _additive,
    "general": _general,
    "concat": _concat,
    "perceptron": _perceptron,
    "cosine": _cosine,
    "trilinear": _trilinear,
    "location": lambda s, h, k, p: sum(s[i] * p["weight"][i][k] for i in range(len(s))),
}
"""align(s, h) of one query vector s and the key vector h at position k, with the score's own parameters p."""


def scores(name, query, key, parameters):
    """(Q, size) and (K, size) -> (Q, K), one pair after the other."""
    align = SCORES[name]
    return np.array([[align(s, h, k, parameters) for k, h in enumerate(key)] for s in query])


def softmax(row, visible=None):
    """Over the visible entries; the others are 0, and so is the whole row when nothing is visible."""
    seen = [k for k in range(len(row)) if visible is None or visible[k]]
    weights = np.zeros(len(row), dtype=np.asarray(row).dtype)
    if not seen:
        return weights
    largest = max(np.real(row[k]) for k in seen)
    total = sum(np.exp(row[k] - largest) for k in seen)
    for k in seen:
        weights[k] = np.exp(row[k] - largest) / total
    return weights


def soft(rows, visible=None):
    return np.array([softmax(row, None if visible is None else visible[q]) for q, row in enumerate(rows)])


def local_monotonic(rows, reach, visible=None, first_query=0):
    """Luong 2015, local-m: p_t = t, a softmax over [p_t - D, p_t + D]."""
    weights = []
    for q, row in enumerate(rows):
        seen = [visible is None or bool(visible[q][k]) for k in range(len(row))]
        last = max([k for k in range(len(row)) if seen[k]], default=0)
        p = min(first_query + q, last)
        weights.append(softmax(row, [seen[k] and p - reach <= k <= p + reach for k in range(len(row))]))
    return np.array(weights)


def local_predictive(rows, reach, query, weight, v, visible=None):
    """Luong 2015, equations 9 and 10: p = S sigmoid(vᵀ tanh(W s)); align(s, h) exp(-(k - p)² / 2σ²), σ = D/2."""
    weights = []
    for q, row in enumerate(rows):
        seen = [visible is None or bool(visible[q][k]) for k in range(len(row))]
        length = 1 + max([k for k in range(len(row)) if seen[k]], default=0)
        size = len(query[q])
        hidden = [np.tanh(sum(query[q][i] * weight[i][a] for i in range(size))) for a in range(size)]
        p = length / (1 + np.exp(-sum(v[a][0] * hidden[a] for a in range(size))))
        inside = [seen[k] and abs(k - np.real(p)) <= reach for k in range(len(row))]
        align = softmax(row, inside)
        sigma = reach / 2
        weights.append([align[k] * np.exp(-((k - p) ** 2) / (2 * sigma**2)) for k in range(len(row))])
    return np.array(weights)


def weighted_sum(weights, value):
    return np.array(
        [[sum(row[k] * value[k][d] for k in range(len(value))) for d in range(len(value[0]))] for row in weights]
    )


def attend(name, query, key, value, parameters, visible=None, bias=None):
    """Soft attention of one example and one head: (Q, K) weights and (Q, D) context."""
    rows = scores(name, query, key, parameters)
    if bias is not None:
        rows = rows + bias
    weights = soft(rows, visible)
    return weights, weighted_sum(weights, value)


def linear(x, weight, bias=None):
    """y_o = Σ_i weight_oi x_i + bias_o for each row of x."""
    return np.array(
        [
            [_dot(weight[o], row) + (0.0 if bias is None else bias[o]) for o in range(len(weight))]
            for row in np.asarray(x)
        ]
    )


def multihead(name, query, key, value, p, score_parameters, heads, visible=None):
    """Vaswani 2017, section 3.2.2, of one example. p: weight and bias of query, key, value and output by name."""
    q, k, v = (
        linear(x, p[f"{which}.weight"], p.get(f"{which}.bias"))
        for which, x in (("query", query), ("key", key), ("value", value))
    )
    size = q.shape[1] // heads
    contexts = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        own = {n: parameter[head] for n, parameter in score_parameters.items()}
        contexts.append(attend(name, q[:, part], k[:, part], v[:, part], own, visible)[1])
    return linear(np.concatenate(contexts, axis=1), p["output.weight"], p.get("output.bias"))


def sinusoids(positions, size, base):
    """Vaswani 2017, section 3.5: PE(p, 2k) = sin(p / base^(2k/D)), PE(p, 2k+1) = cos(p / base^(2k/D))."""
    table = np.zeros((len(positions), size))
    for row, p in enumerate(positions):
        for k in range(size // 2):
            table[row, 2 * k] = math.sin(p / base ** (2 * k / size))
            table[row, 2 * k + 1] = math.cos(p / base ** (2 * k / size))
    return table


def rotate(vector, position, base):
    """Su 2021: features k and k + D/2 are a point in the plane, turned by the angle position · base^(-2k/D)."""
    half = len(vector) // 2
    turned = np.zeros(len(vector))
    for k in range(half):
        angle = position * base ** (-2 * k / len(vector))
        turned[k] = vector[k] * math.cos(angle) - vector[k + half] * math.sin(angle)
        turned[k + half] = vector[k] * math.sin(angle) + vector[k + half] * math.cos(angle)
    return turned


def derivative(function, at, name, step=1e-30):
    """d function / d at[name], number by number, by the complex step. `function` takes the arrays of `at` by name."""
    gradient = np.zeros(at[name].shape)
    for index in np.ndindex(gradient.shape):
        moved = {n: array.astype(complex) for n, array in at.items()}
        moved[name][index] += 1j * step
        gradient[index] = np.imag(function(**moved)) / step
    return gradient
