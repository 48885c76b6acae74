"""The same numbers sooner: functions of tensors alone, which know no score, module or task.

| module        | computes                                              | instead of                        |
|---------------|-------------------------------------------------------|-----------------------------------|
| sentences     | soft dot-product attention over sentences, in C       | torch's fused attention           |
| hidden_layer  | vᵀ tanh(q + k) of all pairs, in C or in chunks        | a hidden layer of B·Q·K·A numbers |
| many_steps    | x M at every step of a loop                           | one gradient of M per step        |
| local2d       | attention to the k × k pixels around each pixel       | k² copies of keys and values      |
| pointwise     | squared ReLU, rotary positions, RMS norm              | autograd's several passes         |
| dropout       | dropout by random bytes                               | a random float for each element   |
| cross_entropy | the last linear layer and its loss                    | logits of all tokens at once      |
| consistency   | the same for R-Drop                                   | logits of two readings            |

Each has one front, a plain reference in torch and a measured gain in its docstring. Unless it says otherwise, a gain is the processor time
of whole training updates with torch instead, divided by that with the kernel: medians of interleaved rounds on one thread with AVX2, on a
busy machine, so differences of a few hundredths are noise. What gains less than 5 % does not belong here. Nothing needs this package:
attention (attention/routes.py) and layers compute the same without it.
"""
