/* Attention over short sentences: softmax(scale Q K^T) V and its gradients, sentence by sentence and head by head.
 *
 *     S = scale Q K^T      P = softmax(S)      O = P V
 *     dV = P^T dO      dP = dO V^T      dS = scale P o (dP - rowsum(P o dP))      dQ = dS K      dK = dS^T Q
 *
 * Sentences of a batch stand one after the other in the rows of Q, K and V, each row with all heads side by side, so they need no
 * padding. A head of a short sentence fits into the first cache: what remains is to read and write each row once, and not to start a
 * general matrix product for a few numbers. Called by short_kernel.py, which has checked everything; nothing here knows Python.
 *
 * Axis legend: B sentences, H heads, Q queries, K keys, D features of a head (a multiple of LANES).
 */

#include "lanes.h"

typedef struct {
    int64_t sentences, heads, features;
    const int64_t *query_starts, *key_starts; /* B + 1 rows each: where every sentence begins, and the end */
    const unsigned char *visible;             /* one for each row of the keys, or null: all of them */
    int64_t causal;                           /* then a sentence's keys stand where its queries do */
    float scale;
    const float *query, *key, *value, *output_gradient;
    int64_t query_row, key_row, value_row; /* how far it is from a row to the next */
    float *output;                         /* this and the gradients: rows of H D floats */
    float *weights;                        /* P of every sentence and head, each of Q rows of padded(K) */
    float *query_gradient, *key_gradient, *value_gradient;
} Batch;

INLINE int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

/* R rows of c = a b at a time, 2 LANES columns of them in registers; a may be read along its columns, b has rows side by side. */
#define ROWS_AT_A_TIME(R)                                                                        \
    for (; i + R <= rows; i += R) {                                                              \
        int64_t j = 0;                                                                           \
        for (; j + 2 * LANES <= columns; j += 2 * LANES) {                                       \
            lanes sum[R][2];                                                                     \
            for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = (lanes){0};                      \
            for (int64_t k = 0; k < depth; k++) {                                                \
                lanes left = FROM(b + k * b_row + j), right = FROM(b + k * b_row + j + LANES);   \
                for (int r = 0; r < R; r++) {                                                    \
                    float factor = a[(i + r) * a_row + k * a_column];                            \
                    sum[r][0] += factor * left;                                                  \
                    sum[r][1] += factor * right;                                                 \
                }                                                                                \
            }                                                                                    \
            for (int r = 0; r < R; r++) {                                                        \
                AT(c + (i + r) * c_row + j) = sum[r][0];                                         \
                AT(c + (i + r) * c_row + j + LANES) = sum[r][1];                                 \
            }                                                                                    \
        }                                                                                        \
        if (j < columns) {                                                                       \
            lanes sum[R];                                                                        \
            for (int r = 0; r < R; r++) sum[r] = (lanes){0};                                     \
            for (int64_t k = 0; k < depth; k++)                                                  \
                for (int r = 0; r < R; r++)                                                      \
                    sum[r] += a[(i + r) * a_row + k * a_column] * FROM(b + k * b_row + j);       \
            for (int r = 0; r < R; r++) AT(c + (i + r) * c_row + j) = sum[r];                    \
        }                                                                                        \
    }

/* c (rows, columns) = a (rows, depth) b (depth, columns); columns are a multiple of LANES. */
INLINE void product(float *restrict c, int64_t c_row, const float *restrict a, int64_t a_row, int64_t a_column,
                    const float *restrict b, int64_t b_row, int64_t rows, int64_t columns, int64_t depth) {
    int64_t i = 0;
    ROWS_AT_A_TIME(4)
    ROWS_AT_A_TIME(2)
    ROWS_AT_A_TIME(1)
}

#ifdef __clang__
#define MERGED(first, second, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#else
#define MERGED(first, second, ...) __builtin_shuffle(first, second, (whole){__VA_ARGS__})
#endif

INLINE void transpose_square(float *to, int64_t to_row, const float *from, int64_t from_row) {
    lanes pairs[LANES], fours[LANES];
    for (int i = 0; i < LANES; i += 2) {
        lanes first = FROM(from + i * from_row), second = FROM(from + (i + 1) * from_row);
        pairs[i] = MERGED(first, second, 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[i + 1] = MERGED(first, second, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int half = 0; half < LANES; half += 4)
        for (int i = 0; i < 2; i++) {
            lanes first = pairs[half + i], second = pairs[half + i + 2];
            fours[half + 2 * i] = MERGED(first, second, 0, 1, 8, 9, 4, 5, 12, 13);
            fours[half + 2 * i + 1] = MERGED(first, second, 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < LANES / 2; i++) {
        AT(to + i * to_row) = MERGED(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        AT(to + (i + 4) * to_row) = MERGED(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* to (D, padded(K)) = from (K, D) turned over, with zeros for the keys that are not there. */
INLINE void transpose(float *restrict to, const float *restrict from, int64_t from_row, int64_t keys, int64_t features) {
    int64_t to_row = padded(keys), i = 0;
    for (; i + LANES <= keys; i += LANES)
        for (int64_t j = 0; j < features; j += LANES) transpose_square(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
    if (i == keys) return;
    for (int64_t j = 0; j < features; j++) AT(to + j * to_row + i) = (lanes){0};
    for (; i < keys; i++)
        for (int64_t j = 0; j < features; j++) to[j * to_row + i] = from[i * from_row + j];
}

/* A row of scores becomes weights that sum to 1, or to 0 where `hidden` (0 or -inf for each key) leaves nothing to see. */
INLINE void softmax(float *row, const float *hidden, int64_t columns, float scale) {
    lanes most = (lanes){0} - INFINITY, sum = {0};
    for (int64_t j = 0; j < columns; j += LANES) {
        AT(row + j) = AT(row + j) * scale + FROM(hidden + j);
        most = larger(AT(row + j), most);
    }
    float top = largest(most);
    if (top == -INFINITY) top = 0;
    for (int64_t j = 0; j < columns; j += LANES) {
        AT(row + j) = exponential(AT(row + j) - top);
        sum += AT(row + j);
    }
    float whole_sum = total(sum), share = whole_sum != 0 ? 1 / whole_sum : 0;
    for (int64_t j = 0; j < columns; j += LANES) AT(row + j) *= share;
}

/* A causal product leaves out what is not seen, some rows at a time; any other takes all rows at once. */
INLINE int64_t rows_together(const Batch *batch, int64_t rows) { return batch->causal ? LANES : rows; }

/* c (Q, padded(K)) = rows (Q, D) turned (D, padded(K)); where causal, only as far as a query sees. */
INLINE void against_keys(const Batch *batch, float *c, const float *rows, const float *turned, int64_t queries, int64_t keys) {
    int64_t width = padded(keys), step = rows_together(batch, queries);
    for (int64_t i = 0; i < queries; i += step) {
        int64_t columns = batch->causal ? at_most(width, i + step) : width;
        product(c + i * width, width, rows + i * batch->features, batch->features, 1, turned, width, at_most(step, queries - i),
                columns, batch->features);
    }
}

/* c (Q, D) = weights (Q, padded(K)) rows (K, D) */
INLINE void sum_keys(const Batch *batch, float *c, const float *weights, const float *rows, int64_t queries, int64_t keys) {
    int64_t width = padded(keys), c_row = batch->heads * batch->features, step = rows_together(batch, queries);
    for (int64_t i = 0; i < queries; i += step) {
        int64_t depth = batch->causal ? at_most(keys, i + step) : keys;
        product(c + i * c_row, c_row, weights + i * width, width, 1, rows, batch->features, at_most(step, queries - i),
                batch->features, depth);
    }
}

/* c (K, D) = weights (Q, padded(K)) turned over, rows (Q, D) */
INLINE void sum_queries(const Batch *batch, float *c, const float *weights, const float *rows, int64_t queries, int64_t keys) {
    int64_t width = padded(keys), c_row = batch->heads * batch->features, step = rows_together(batch, keys);
    for (int64_t i = 0; i < keys; i += step) {
        int64_t first = batch->causal ? i : 0; /* who sees these keys */
        product(c + i * c_row, c_row, weights + first * width + i, 1, width, rows + first * batch->features, batch->features,
                at_most(step, keys - i), batch->features, queries - first);
    }
}

/* What comes next is on its way from memory, into the second cache, while this is computed. */
INLINE void fetch(const float *rows, int64_t row, int64_t count, int64_t features) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < features; j += LINE) __builtin_prefetch(rows + i * row + j, 0, 2);
}

/* Rows of one head side by side: as they stand between other heads they are a power of two apart and drive each other out of the cache. */
INLINE const float *gathered(float *restrict to, const float *restrict from, int64_t row, int64_t count, int64_t features) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < features; j += LANES) AT(to + i * features + j) = FROM(from + i * row + j);
    return to;
}

/* What a head of a sentence is computed in. */
typedef struct {
    float *hidden;                /* padded(K): 0 or -inf */
    float *turned;                /* D, padded(K) */
    float *gradient;              /* Q, padded(K) */
    float *queries, *keys, *last; /* rows of D: Q, K and as many as there are more of */
} Desk;

INLINE int64_t longer(int64_t first, int64_t second) { return first > second ? first : second; }

INLINE Desk laid_out(float *held, int64_t queries, int64_t keys, int64_t features) {
    float *turned = held + padded(keys), *gradient = turned + padded(keys) * features, *rows = gradient + queries * padded(keys);
    return (Desk){held, turned, gradient, rows, rows + queries * features, rows + (queries + keys) * features};
}

INLINE int64_t floats_held(int64_t queries, int64_t keys, int64_t features) {
    Desk desk = laid_out(NULL, queries, keys, features);
    return desk.last - desk.hidden + longer(queries, keys) * features;
}

INLINE void attend(const Batch *batch, int64_t b, int64_t head, float *weights, const Desk *desk) {
    int64_t features = batch->features, at = head * features;
    int64_t first = batch->query_starts[b], queries = batch->query_starts[b + 1] - first;
    int64_t first_key = batch->key_starts[b], keys = batch->key_starts[b + 1] - first_key, width = padded(keys);
    const float *query = gathered(desk->queries, batch->query + first * batch->query_row + at, batch->query_row, queries, features);
    const float *value = gathered(desk->last, batch->value + first_key * batch->value_row + at, batch->value_row, keys, features);
    transpose(desk->turned, batch->key + first_key * batch->key_row + at, batch->key_row, keys, features);
    against_keys(batch, weights, query, desk->turned, queries, keys);
    for (int64_t i = 0; i < queries; i++) {
        int64_t columns = batch->causal ? padded(i + 1) : width;
        if (batch->causal)
            for (int64_t j = i + 1; j < columns; j++) weights[i * width + j] = -INFINITY;
        softmax(weights + i * width, desk->hidden, columns, batch->scale);
    }
    sum_keys(batch, batch->output + first * batch->heads * features + at, weights, value, queries, keys);
}

INLINE void attend_backward(const Batch *batch, int64_t b, int64_t head, const float *weights, const Desk *desk) {
    int64_t features = batch->features, at = head * features, row = batch->heads * features;
    int64_t first = batch->query_starts[b], queries = batch->query_starts[b + 1] - first;
    int64_t first_key = batch->key_starts[b], keys = batch->key_starts[b + 1] - first_key, width = padded(keys);
    const float *query = gathered(desk->queries, batch->query + first * batch->query_row + at, batch->query_row, queries, features);
    const float *key = gathered(desk->keys, batch->key + first_key * batch->key_row + at, batch->key_row, keys, features);
    const float *output = gathered(desk->last, batch->output_gradient + first * row + at, row, queries, features);
    sum_queries(batch, batch->value_gradient + first_key * row + at, weights, output, queries, keys);
    transpose(desk->turned, batch->value + first_key * batch->value_row + at, batch->value_row, keys, features);
    against_keys(batch, desk->gradient, output, desk->turned, queries, keys);
    for (int64_t i = 0; i < queries; i++) {
        const float *p = weights + i * width;
        float *g = desk->gradient + i * width;
        int64_t columns = batch->causal ? padded(i + 1) : width;
        lanes sum = {0};
        for (int64_t j = 0; j < columns; j += LANES) sum += FROM(p + j) * AT(g + j);
        float mean = total(sum);
        for (int64_t j = 0; j < columns; j += LANES) AT(g + j) = (AT(g + j) - mean) * FROM(p + j) * batch->scale;
    }
    sum_keys(batch, batch->query_gradient + first * row + at, desk->gradient, key, queries, keys);
    sum_queries(batch, batch->key_gradient + first_key * row + at, desk->gradient, query, queries, keys);
}

typedef struct {
    const Batch *batch;
    int64_t from, to, weights_before; /* sentences of this thread, and how many weights those before have */
    float *held;                      /* its own memory */
    int backward;
} Share;

static void *work(void *given) {
    const Share *share = given;
    const Batch *batch = share->batch;
    int64_t row = batch->heads * batch->features;
    float *weights = batch->weights + share->weights_before;
    for (int64_t b = share->from; b < share->to; b++) {
        int64_t queries = batch->query_starts[b + 1] - batch->query_starts[b], first_key = batch->key_starts[b];
        int64_t keys = batch->key_starts[b + 1] - first_key, width = padded(keys), next = b + 1 < share->to ? b + 1 : b;
        int64_t next_query = batch->query_starts[next], next_key = batch->key_starts[next];
        int64_t next_queries = batch->query_starts[next + 1] - next_query, next_keys = batch->key_starts[next + 1] - next_key;
        Desk desk = laid_out(share->held, queries, keys, batch->features);
        for (int64_t j = 0; j < width; j++)
            desk.hidden[j] = j < keys && (!batch->visible || batch->visible[first_key + j]) ? 0 : -INFINITY;
        for (int64_t head = 0; head < batch->heads; head++, weights += queries * width) {
            int64_t at = head * batch->features;
            fetch(batch->query + next_query * batch->query_row + at, batch->query_row, next_queries, batch->features);
            fetch(batch->key + next_key * batch->key_row + at, batch->key_row, next_keys, batch->features);
            fetch(batch->value + next_key * batch->value_row + at, batch->value_row, next_keys, batch->features);
            if (share->backward) {
                fetch(batch->output_gradient + next_query * row + at, row, next_queries, batch->features);
                attend_backward(batch, b, head, weights, &desk);
            } else {
                attend(batch, b, head, weights, &desk);
            }
        }
    }
    return NULL;
}

/* The sentences in as many shares as there are threads, of about as many weights each. 0 if there was no memory. */
static int in_shares(const Batch *batch, int64_t threads, int backward) {
    Share shares[MOST_THREADS];
    int64_t all = 0, before = 0, most = 0, b = 0;
    for (int64_t each = 0; each < batch->sentences; each++) {
        int64_t queries = batch->query_starts[each + 1] - batch->query_starts[each];
        int64_t keys = batch->key_starts[each + 1] - batch->key_starts[each];
        all += queries * padded(keys);
        most = longer(most, floats_held(queries, keys, batch->features));
    }
    most = (most + LINE) / LINE * LINE;
    threads = at_most(longer(threads, 1), MOST_THREADS);
    float *held = malloc((size_t)(most * threads) * sizeof(float));
    if (!held) return 0;
    for (int64_t thread = 0; thread < threads; thread++) {
        shares[thread] = (Share){batch, b, b, before * batch->heads, held + thread * most, backward};
        for (; b < batch->sentences && (thread == threads - 1 || before < all * (thread + 1) / threads); b++)
            before += (batch->query_starts[b + 1] - batch->query_starts[b]) * padded(batch->key_starts[b + 1] - batch->key_starts[b]);
        shares[thread].to = b;
    }
    in_threads(work, shares, sizeof(Share), threads);
    free(held);
    return 1;
}

int saccade_attend(const Batch *batch, int64_t threads) { return in_shares(batch, threads, 0); }

int saccade_attend_backward(const Batch *batch, int64_t threads) { return in_shares(batch, threads, 1); }
