/* Attention over short sentences: softmax(scale Q K^T) V and its gradients, sentence by sentence and head by head.
 *
 *     S = scale Q K^T      P = softmax(S)      O = P V
 *     dV = P^T dO      dP = dO V^T      dS = scale P o (dP - rowsum(P o dP))      dQ = dS K      dK = dS^T Q
 *
 * A head of a short sentence fits into the first cache: what remains is to read and write each row once, and not to start a general
 * matrix product for a few numbers. What is saved are the weights: P of every sentence and head, each of Q rows of padded(K).
 * Called by sentences.py, which has checked everything; nothing here knows Python.
 *
 * Axis legend: B sentences, H heads, Q queries, K keys, D features of a head (a multiple of LANES).
 */

#include "sentences.h"

INLINE int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

enum { PANEL = 2 * LANES };

/* A matrix whose rows are to be read again and again: in panels of PANEL columns, each with all its rows; the last may have LANES. */
typedef struct {
    const float *place;
    int64_t rows, columns;
} Panels;

INLINE int64_t panel_width(int64_t column, int64_t columns) { return columns - column >= PANEL ? PANEL : LANES; }

/* R rows of c = a b at a time, N LANES columns of them in registers; a may be read along its columns. */
#define ROWS_AT_A_TIME(R, N)                                                                             \
    for (; i + R <= rows; i += R) {                                                                      \
        lanes sum[R][N];                                                                                 \
        const float *factors = a + i * a_row, *row = panel;                                              \
        for (int r = 0; r < R; r++)                                                                      \
            for (int n = 0; n < N; n++) sum[r][n] = (lanes){0};                                          \
        for (int64_t k = 0; k < depth; k++, factors += a_column, row += N * LANES)                       \
            for (int r = 0; r < R; r++)                                                                  \
                for (int n = 0; n < N; n++) sum[r][n] += factors[r * a_row] * FROM(row + n * LANES);     \
        for (int r = 0; r < R; r++)                                                                      \
            for (int n = 0; n < N; n++) AT(c + (i + r) * c_row + j + n * LANES) = sum[r][n];             \
    }

/* c (rows, columns) = a (rows, depth) b, of which rows from `first` on and the leading columns: all, or whole panels. */
INLINE void product(float *restrict c, int64_t c_row, const float *restrict a, int64_t a_row, int64_t a_column, Panels b, int64_t first,
                    int64_t rows, int64_t columns, int64_t depth) {
    for (int64_t j = 0; j < columns; j += PANEL) {
        int64_t width = panel_width(j, b.columns), i = 0;
        const float *panel = b.place + j * b.rows + first * width;
        if (width == PANEL) {
            ROWS_AT_A_TIME(6, 2)
            ROWS_AT_A_TIME(4, 2)
            ROWS_AT_A_TIME(2, 2)
            ROWS_AT_A_TIME(1, 2)
        } else {
            ROWS_AT_A_TIME(6, 1)
            ROWS_AT_A_TIME(2, 1)
            ROWS_AT_A_TIME(1, 1)
        }
    }
}

/* Rows (K, D) transposed: (D, padded(K)), with zeros for the keys that are not there. */
INLINE Panels transposed(float *restrict to, const float *restrict from, int64_t from_row, int64_t keys, int64_t features) {
    int64_t columns = padded(keys);
    for (int64_t i = 0; i < columns; i += EIGHT) {
        int64_t panel = i / PANEL * PANEL, width = panel_width(panel, columns);
        float *place = to + panel * features + i - panel;
        if (i + EIGHT <= keys) {
            for (int64_t j = 0; j < features; j += EIGHT)
                transpose_square(place + j * width, width, from + i * from_row + j, from_row);
            continue;
        }
        for (int64_t j = 0; j < features; j++)
            for (int64_t k = i; k < i + EIGHT; k++) place[j * width + k - i] = k < keys ? from[k * from_row + j] : 0;
    }
    return (Panels){to, features, columns};
}

/* Rows (count, D) as they are. */
INLINE Panels gathered(float *restrict to, const float *restrict from, int64_t from_row, int64_t count, int64_t features) {
    for (int64_t j = 0; j < features; j += PANEL) {
        int64_t width = panel_width(j, features);
        for (int64_t i = 0; i < count; i++)
            for (int64_t lane = 0; lane < width; lane += LANES)
                AT(to + j * count + i * width + lane) = FROM(from + i * from_row + j + lane);
    }
    return (Panels){to, count, features};
}

/* A row of scores becomes weights that sum to 1, or to 0 where `hidden` (0 or -inf for each key) leaves nothing to see.
 * Of the last lanes only those before `seen` count. */
INLINE void softmax(float *row, const float *hidden, int64_t columns, int64_t seen, float scale) {
    lanes most = (lanes){0} - INFINITY, sum = {0};
    for (int64_t j = 0; j < columns; j += LANES) {
        AT(row + j) = AT(row + j) * scale + FROM(hidden + j);
        for (int64_t k = seen; k < j + LANES; k++) row[k] = -INFINITY;
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

/* A causal product leaves out what is not seen, a panel's rows at a time; any other takes all rows at once. */
INLINE int64_t rows_together(const Batch *batch, int64_t rows) { return batch->causal ? PANEL : rows; }

/* c (Q, padded(K)) = rows (Q, D) keys (D, padded(K)); where causal, only as far as a query sees. */
INLINE void against_keys(const Batch *batch, float *c, const float *rows, int64_t row, Panels keys, int64_t queries) {
    int64_t width = keys.columns, step = rows_together(batch, queries);
    for (int64_t i = 0; i < queries; i += step)
        product(c + i * width, width, rows + i * row, row, 1, keys, 0, at_most(step, queries - i),
                batch->causal ? at_most(width, i + step) : width, batch->features);
}

/* c (Q, D) = weights (Q, padded(K)) rows (K, D) */
INLINE void sum_keys(const Batch *batch, float *c, const float *weights, Panels rows, int64_t queries) {
    int64_t width = padded(rows.rows), c_row = batch->heads * batch->features, step = rows_together(batch, queries);
    for (int64_t i = 0; i < queries; i += step)
        product(c + i * c_row, c_row, weights + i * width, width, 1, rows, 0, at_most(step, queries - i), batch->features,
                batch->causal ? at_most(rows.rows, i + step) : rows.rows);
}

/* c (K, D) = weights (Q, padded(K)) transposed, rows (Q, D); where causal, from the first who sees these keys. */
INLINE void sum_queries(const Batch *batch, float *c, const float *weights, Panels rows, int64_t keys) {
    int64_t width = padded(keys), c_row = batch->heads * batch->features, step = rows_together(batch, keys);
    for (int64_t i = 0; i < keys; i += step) {
        int64_t first = batch->causal ? i : 0;
        product(c + i * c_row, c_row, weights + first * width + i, 1, width, rows, first, at_most(step, keys - i), batch->features,
                rows.rows - first);
    }
}

/* What comes next is on its way from memory, into the second cache, while this is computed. */
INLINE void fetch(const float *rows, int64_t row, int64_t count, int64_t features) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < features; j += LINE) __builtin_prefetch(rows + i * row + j, 0, 2);
}

/* What a head of a sentence is computed in. */
typedef struct {
    float *hidden;   /* padded(K): 0 or -inf */
    float *gradient; /* Q, padded(K) */
    float *panels;   /* of the longer of queries and keys, D wide, twice */
} Desk;

INLINE int64_t floats_of_panels(int64_t queries, int64_t keys, int64_t features) { return padded(at_least(queries, keys)) * features; }

INLINE int64_t floats_held(int64_t queries, int64_t keys, int64_t features) {
    return padded(keys) * (1 + queries) + 2 * floats_of_panels(queries, keys, features);
}

/* How far a row of weights is to be computed with: where causal, the lanes up to the query's own. */
INLINE int64_t lanes_seen(const Batch *batch, int64_t query, int64_t width) { return batch->causal ? padded(query + 1) : width; }

/* What the products take beyond these lanes, up to the end of a panel, is 0. */
INLINE void forget_unseen(float *row, int64_t seen, int64_t width) {
    for (int64_t j = seen; j < at_most(width, (seen + PANEL - 1) / PANEL * PANEL); j += LANES) AT(row + j) = (lanes){0};
}

INLINE void attend(const Batch *batch, int64_t b, int64_t head, float *weights, const Desk *desk) {
    int64_t features = batch->features, at = head * features;
    int64_t first = batch->query_starts[b], queries = batch->query_starts[b + 1] - first;
    int64_t first_key = batch->key_starts[b], keys = batch->key_starts[b + 1] - first_key, width = padded(keys);
    Panels transposed_keys = transposed(desk->panels, batch->key + first_key * batch->key_row + at, batch->key_row, keys, features);
    against_keys(batch, weights, batch->query + first * batch->query_row + at, batch->query_row, transposed_keys, queries);
    for (int64_t i = 0; i < queries; i++) {
        int64_t seen = lanes_seen(batch, i, width);
        softmax(weights + i * width, desk->hidden, seen, batch->causal ? i + 1 : width, batch->scale);
        forget_unseen(weights + i * width, seen, width);
    }
    Panels values = gathered(desk->panels, batch->value + first_key * batch->value_row + at, batch->value_row, keys, features);
    sum_keys(batch, batch->output + first * batch->heads * features + at, weights, values, queries);
}

INLINE void attend_backward(const Batch *batch, int64_t b, int64_t head, const float *weights, const Desk *desk) {
    int64_t features = batch->features, at = head * features, row = batch->heads * features;
    int64_t first = batch->query_starts[b], queries = batch->query_starts[b + 1] - first;
    int64_t first_key = batch->key_starts[b], keys = batch->key_starts[b + 1] - first_key, width = padded(keys);
    const float *output = batch->output_gradient + first * row + at;
    float *panels = desk->panels, *more_panels = panels + floats_of_panels(queries, keys, features);
    Panels outputs = gathered(panels, output, row, queries, features);
    sum_queries(batch, batch->value_gradient + first_key * row + at, weights, outputs, keys);
    Panels transposed_values = transposed(more_panels, batch->value + first_key * batch->value_row + at, batch->value_row, keys, features);
    against_keys(batch, desk->gradient, output, row, transposed_values, queries);
    for (int64_t i = 0; i < queries; i++) {
        const float *p = weights + i * width;
        float *g = desk->gradient + i * width;
        int64_t seen = lanes_seen(batch, i, width);
        lanes sum = {0};
        for (int64_t j = 0; j < seen; j += LANES) sum += FROM(p + j) * AT(g + j);
        float mean = total(sum);
        for (int64_t j = 0; j < seen; j += LANES) AT(g + j) = (AT(g + j) - mean) * FROM(p + j) * batch->scale;
        forget_unseen(g, seen, width);
    }
    Panels all_keys = gathered(panels, batch->key + first_key * batch->key_row + at, batch->key_row, keys, features);
    sum_keys(batch, batch->query_gradient + first * row + at, desk->gradient, all_keys, queries);
    Panels all_queries = gathered(more_panels, batch->query + first * batch->query_row + at, batch->query_row, queries, features);
    sum_queries(batch, batch->key_gradient + first_key * row + at, desk->gradient, all_queries, keys);
}

typedef struct {
    const Batch *batch;
    int64_t from, to, weights_before; /* sentences of this thread, and how many weights those before have */
    float *held;                      /* its own memory */
    int backward;
} Share;

static void *work(void *argument) {
    const Share *share = argument;
    const Batch *batch = share->batch;
    int64_t row = batch->heads * batch->features;
    float *weights = batch->saved ? batch->saved + share->weights_before : NULL;
    for (int64_t b = share->from; b < share->to; b++) {
        int64_t queries = batch->query_starts[b + 1] - batch->query_starts[b], first_key = batch->key_starts[b];
        int64_t keys = batch->key_starts[b + 1] - first_key, width = padded(keys), next = b + 1 < share->to ? b + 1 : b;
        int64_t next_query = batch->query_starts[next], next_key = batch->key_starts[next];
        int64_t next_queries = batch->query_starts[next + 1] - next_query, next_keys = batch->key_starts[next + 1] - next_key;
        float *gradient = share->held + width;
        Desk desk = {share->held, gradient, gradient + queries * width};
        for (int64_t j = 0; j < width; j++)
            desk.hidden[j] = j < keys && (!batch->visible || batch->visible[first_key + j]) ? 0 : -INFINITY;
        for (int64_t head = 0; head < batch->heads; head++, weights += batch->saved ? queries * width : 0) {
            int64_t at = head * batch->features;
            fetch(batch->query + next_query * batch->query_row + at, batch->query_row, next_queries, batch->features);
            fetch(batch->key + next_key * batch->key_row + at, batch->key_row, next_keys, batch->features);
            fetch(batch->value + next_key * batch->value_row + at, batch->value_row, next_keys, batch->features);
            if (share->backward) {
                fetch(batch->output_gradient + next_query * row + at, row, next_queries, batch->features);
                attend_backward(batch, b, head, weights, &desk);
            } else {
                attend(batch, b, head, batch->saved ? weights : desk.gradient, &desk);
            }
        }
    }
    return NULL;
}

/* The sentences in as many shares as there are threads, of about as many weights each. 0 if there was no memory. */
static int in_shares(const Batch *batch, int64_t threads, int backward) {
    Share shares[MOST_THREADS];
    int64_t all = 0, before = 0, most = 0, b = 0;
    for (int64_t s = 0; s < batch->sentences; s++) {
        int64_t queries = batch->query_starts[s + 1] - batch->query_starts[s];
        int64_t keys = batch->key_starts[s + 1] - batch->key_starts[s];
        all += queries * padded(keys);
        most = at_least(most, floats_held(queries, keys, batch->features));
    }
    most = (most + LINE) / LINE * LINE;
    threads = worth_starting(at_most(threads, batch->sentences), 2 * all * batch->heads * batch->features);
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
