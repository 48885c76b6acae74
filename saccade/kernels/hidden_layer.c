/* The hidden layer of the additive scores, v^T tanh(q + k), and its gradients, without ever holding a unit of it.
 *
 *     t = 1 / (1 + e^2q e^2k)      tanh(q + k) = 1 - 2 t      score = sum v (1 - 2 t)
 *     with g the gradient of a score:      v: g (1 - 2 t)      q, k: v g 4 t (1 - t)
 *
 * e^2q and e^2k are given. The gradients of q and k come without v, by which they are multiplied once, not for every pair.
 * Called by hidden_layer_compiled.py, which has checked everything.
 *
 * Axis legend: B batch (heads of an example one after the other), H heads, Q queries, K keys, A hidden size, a multiple of LANES.
 */

#include "lanes.h"

typedef struct {
    const float *query, *key, *v; /* (B, Q, A), (B, K, A), (H, A) */
    float *scores;                /* (B, Q, K) */
    const float *gradient;        /* (B, Q, K); null in forward */
    float *query_gradient;        /* (B, Q, A) */
    float *key_gradient;          /* (B, K, A), added to */
    float *v_gradient;            /* (H, A), added to */
    int64_t batch, heads, queries, keys, features;
} Layer;

typedef struct {
    const Layer *layer;
    float *of_v;      /* (A,): what one query adds to the gradient of v */
    int64_t from, to; /* forward: queries of all examples; backward: features */
} Share;

static void *compute_scores(void *argument) {
    const Share *share = argument;
    const Layer *layer = share->layer;
    int64_t A = layer->features;
    for (int64_t row = share->from; row < share->to; row++) {
        int64_t b = row / layer->queries;
        const float *query = layer->query + row * A, *key = layer->key + b * layer->keys * A, *v = layer->v + b % layer->heads * A;
        lanes all = {0};
        for (int64_t a = 0; a < A; a += LANES) all += FROM(v + a);
        float most = total(all);
        for (int64_t k = 0; k < layer->keys; k++, key += A) {
            lanes sum = {0};
            for (int64_t a = 0; a < A; a += LANES) sum += FROM(v + a) / (1.0f + FROM(query + a) * FROM(key + a));
            layer->scores[row * layer->keys + k] = most - 2 * total(sum);
        }
    }
    return NULL;
}

/* Some of the features, of all queries and keys: nobody else adds to these. A score without a gradient, as of a hidden key, adds nothing. */
static void *add_gradients(void *argument) {
    const Share *share = argument;
    const Layer *layer = share->layer;
    int64_t A = layer->features, from = share->from, to = share->to;
    float *of_v = share->of_v;
    for (int64_t row = 0; row < layer->batch * layer->queries; row++) {
        int64_t b = row / layer->queries;
        const float *query = layer->query + row * A, *key = layer->key + b * layer->keys * A, *gradient = layer->gradient + row * layer->keys;
        float *of_query = layer->query_gradient + row * A, *of_key = layer->key_gradient + b * layer->keys * A;
        for (int64_t a = from; a < to; a += LANES) AT(of_query + a) = AT(of_v + a) = (lanes){0};
        for (int64_t k = 0; k < layer->keys; k++, key += A, of_key += A) {
            float g = gradient[k];
            if (g == 0) continue;
            for (int64_t a = from; a < to; a += LANES) {
                lanes t = 1.0f / (1.0f + FROM(query + a) * FROM(key + a)), before = 4 * g * t * (1.0f - t);
                AT(of_query + a) += before;
                AT(of_key + a) += before;
                AT(of_v + a) += g - 2 * g * t;
            }
        }
        float *v = layer->v_gradient + b % layer->heads * A;
        for (int64_t a = from; a < to; a += LANES) AT(v + a) += AT(of_v + a);
    }
    return NULL;
}

/* 0 if there was no memory. */
int saccade_hidden_layer(const Layer *layer, int64_t threads) {
    Share shares[MOST_THREADS];
    int backward = layer->gradient != NULL;
    int64_t parts = backward ? layer->features / LANES : layer->batch * layer->queries, size = backward ? LANES : 1;
    int64_t units = layer->batch * layer->queries * layer->keys * layer->features;
    threads = worth_starting(at_most(threads, parts), 8 * units); /* a unit costs as much as several multiplications */
    float *of_v = backward ? malloc((size_t)layer->features * sizeof(float)) : NULL;
    if (backward && !of_v) return 0;
    for (int64_t thread = 0; thread < threads; thread++)
        shares[thread] = (Share){layer, of_v, parts * thread / threads * size, parts * (thread + 1) / threads * size};
    in_threads(backward ? add_gradients : compute_scores, shares, sizeof(Share), threads);
    free(of_v);
    return 1;
}
