/* Attention over long sentences: softmax(scale Q K^T) V and its gradients without ever holding the weights (after Dao 2022).
 *
 *     S = scale Q K^T      P = softmax(S)      O = P V
 *     dV = P^T dO      dP = dO V^T      dS = P o (dP - rowsum(dO o O))      dQ = scale dS K      dK = scale dS^T Q
 *
 * A panel of queries goes over the keys block by block. Everything stands transposed, S^T and P^T (K, Q): a query is a lane, so that its
 * largest score and its sum need no shuffling, and every product reads one factor number by number and the other lanes by lanes, as each
 * stands. Backward computes the weights again from what was saved: the logarithm of each query's sum, (N, H).
 * Logarithms and exponentials are of base 2 here; Q carries scale / ln 2.
 * Called by sentences.py, which has checked everything; nothing here knows Python.
 *
 * Axis legend: B sentences, H heads, Q queries, K keys, D features of a head (a multiple of 16), N rows of all sentences.
 */

#include "rows.h"
#include "sentences.h"

/* A tile of a product that fits into the registers: TALL rows of WIDE lanes of queries; of the gradients of keys and values, whose lanes
 * are features, ROWS of FLAT. */
#ifdef __AVX512F__
enum { TALL = 6, WIDE = 4, FLAT = 4, PANELS = 2 };
#else
enum { TALL = 4, WIDE = 3, FLAT = 2, PANELS = 4 };
#endif
enum { ROWS = 6, PANEL = WIDE * LANES, QUERIES = PANELS * PANEL /* of a block, in backward */, KEYS = 96 /* of a block */ };

static const float INVERSE_OF_LN_2 = 1.44269504f, LN_2 = 0.693147181f;

#define EACH(R, N) _Pragma("GCC unroll 8") for (int r = 0; r < R; r++) _Pragma("GCC unroll 8") for (int n = 0; n < N; n++)

/* sum[r][n] += a[k][r] b[k][n] for every k: a's rows are a_row apart, its columns a_column, b's rows b_row. */
#define ADD_PRODUCTS(sum, R, N, depth, a, a_row, a_column, b, b_row)                                               \
    do {                                                                                                           \
        const float *factors = (a), *row = (b);                                                                    \
        for (int64_t k = 0; k < (depth); k++, factors += (a_row), row += (b_row)) {                                \
            lanes of_row[N];                                                                                       \
            _Pragma("GCC unroll 8") for (int n = 0; n < N; n++) of_row[n] = FROM(row + n * LANES);                 \
            EACH(R, N) sum[r][n] += factors[r * (a_column)] * of_row[n];                                           \
        }                                                                                                          \
    } while (0)

/* The products stand by themselves, so that nothing else asks for their registers. Of the last panel only as many lanes as have queries.
 * Rows that are left over where tiles end, an even number, are taken by twos. What is added to was summed over other blocks: each block by
 * itself first, so that long sums stay exact. */
_Static_assert(WIDE <= 4, "FOR_AS_WIDE_AS knows four widths");
_Static_assert(KEYS % EIGHT == 0 && TALL % 2 == 0 && ROWS % 2 == 0, "an even number of rows is left over");
#define APART static __attribute__((noinline)) void
#define WITH_THE_REST(PRODUCT, R, N) \
    do {                             \
        PRODUCT(R, N)                \
        PRODUCT(2, N)                \
    } while (0)
#define FOR_AS_WIDE_AS(wide, PRODUCT)                             \
    do {                                                          \
        if ((wide) == WIDE) WITH_THE_REST(PRODUCT, TALL, WIDE);   \
        else if ((wide) == 3) WITH_THE_REST(PRODUCT, TALL, 3);    \
        else if ((wide) == 2) WITH_THE_REST(PRODUCT, TALL, 2);    \
        else WITH_THE_REST(PRODUCT, TALL, 1);                     \
    } while (0)

#define COMPARE(R, N)                                                       \
    for (; i + R <= keys; i += R) {                                         \
        lanes sum[R][N] = {{{0}}};                                          \
        ADD_PRODUCTS(sum, R, N, D, rows + i * D, 1, D, queries, PANEL);     \
        EACH(R, N) AT(scores + (i + r) * PANEL + n * LANES) = sum[r][n];    \
    }

/* scores (keys, PANEL) = rows (keys, D) queries (D, PANEL) */
APART compare(float *scores, const float *rows, const float *queries, int64_t wide, int64_t keys, int64_t D) {
    int64_t i = 0;
    FOR_AS_WIDE_AS(wide, COMPARE);
}

#define SUM_KEYS(R, N)                                                      \
    for (; d + R <= D; d += R) {                                            \
        lanes sum[R][N] = {{{0}}};                                          \
        ADD_PRODUCTS(sum, R, N, keys, rows + d, D, 1, weights, PANEL);      \
        EACH(R, N) AT(sums + (d + r) * PANEL + n * LANES) += sum[r][n];     \
    }

/* sums (D, PANEL) += rows (keys, D), transposed, weights (keys, PANEL) */
APART sum_keys(float *sums, const float *rows, const float *weights, int64_t wide, int64_t keys, int64_t D) {
    int64_t d = 0;
    FOR_AS_WIDE_AS(wide, SUM_KEYS);
}

#define SUM_QUERIES(R, N)                                                                                                        \
    for (; i + R <= keys; i += R) {                                                                                              \
        lanes sum[R][N] = {{{0}}};                                                                                               \
        for (int64_t q = 0; q < queries; q += PANEL)                                                                             \
            ADD_PRODUCTS(sum, R, N, at_most(PANEL, queries - q), weights + q * KEYS + i * PANEL, 1, PANEL, rows + q * D + d, D); \
        EACH(R, N) AT(sums + (i + r) * D + d + n * LANES) += sum[r][n];                                                          \
    }
#define OF_ALL_FEATURES(N)                                                   \
    for (int64_t i = 0; d + N * LANES <= D; d += N * LANES, i = 0) {         \
        WITH_THE_REST(SUM_QUERIES, ROWS, N);                                  \
    }

/* sums (keys, D) += weights (keys, queries) rows (queries, D), the weights in panels of KEYS rows */
APART sum_queries(float *sums, const float *weights, const float *rows, int64_t queries, int64_t keys, int64_t D) {
    int64_t d = 0;
    OF_ALL_FEATURES(FLAT)
    OF_ALL_FEATURES(2)
    OF_ALL_FEATURES(1)
}

/* How many lanes of a panel, in units of LANES, so many queries take. */
INLINE int64_t width_of(int64_t queries) { return at_most(WIDE, (queries + LANES - 1) / LANES); }

/* A head of a sentence. */
typedef struct {
    const Batch *batch;
    int64_t head, at, row;                             /* which, where it begins in a row, and how far rows of the output are apart */
    int64_t first, queries, first_key, keys, all_keys; /* all_keys: with those that fill up a group of eight */
} Head;

INLINE Head head_of(const Batch *batch, int64_t b, int64_t head) {
    int64_t first = batch->query_starts[b], first_key = batch->key_starts[b], keys = batch->key_starts[b + 1] - first_key;
    int64_t at = head * batch->features, row = batch->heads * batch->features, queries = batch->query_starts[b + 1] - first;
    return (Head){batch, head, at, row, first, queries, first_key, keys, rounded_up(keys, EIGHT)};
}

/* How many of the keys queries before `end` may see. */
INLINE int64_t keys_before(const Head *head, int64_t end) {
    return head->batch->causal ? at_most(head->all_keys, rounded_up(end, EIGHT)) : head->all_keys;
}

/* -inf for the keys that are hidden or not there, and for those after a query. Scores (count, PANEL) begin with key k and query q. */
static void hide(const Head *head, float *scores, int64_t k, int64_t count, int64_t q) {
    const unsigned char *visible = head->batch->visible;
    int causal = head->batch->causal && k + count > q;
    if (!visible && !causal && k + count <= head->keys) return;
    for (int64_t i = 0; i < count; i++, scores += PANEL) {
        int64_t key = k + i, hidden = causal ? at_most(PANEL, key - q) : 0;
        if (key >= head->keys || (visible && !visible[head->first_key + key])) hidden = PANEL;
        for (int64_t j = 0; j < hidden; j++) scores[j] = -INFINITY;
    }
}

/* What a thread works in. */
typedef struct {
    float *keys, *values;                                /* (K, D) each */
    float *key_gradient, *value_gradient;                /* (K, D) each, in backward */
    float *rows, *output_rows;                           /* (QUERIES, D) each */
    float *queries, *outputs, *query_gradient;           /* the same in panels, transposed */
    float *weights, *gradients;                          /* KEYS rows for each panel */
    float *logarithms, *means, *factors;                 /* (QUERIES,) */
} Desk;

/* The desk's places one after the other, or only how many floats that takes. */
static int64_t lay_out(Desk *desk, float *held, int64_t most_keys, int64_t D, int backward) {
    float **of_keys[] = {&desk->keys, &desk->values};
    float **of_keys_back[] = {&desk->key_gradient, &desk->value_gradient};
    float **of_rows[] = {&desk->rows, &desk->output_rows, &desk->queries, &desk->outputs, &desk->query_gradient};
    float **of_pairs[] = {&desk->weights, &desk->gradients}, **of_queries[] = {&desk->logarithms, &desk->means, &desk->factors};
    int64_t used = 0;
#define LAY(places, size)                                                                      \
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++, used += (size) + 5 * LINE)   \
        if (held) *places[i] = held + used
    LAY(of_keys, rounded_up(most_keys, EIGHT) * D);
    LAY(of_keys_back, backward ? rounded_up(most_keys, EIGHT) * D : 0);
    LAY(of_rows, QUERIES * D);
    LAY(of_pairs, QUERIES * KEYS);
    LAY(of_queries, QUERIES);
#undef LAY
    return rounded_up(used, LINE);
}

/* Reads what all queries need. */
static void read_keys(const Head *head, Desk *desk, int backward) {
    const Batch *batch = head->batch;
    int64_t D = batch->features, count = head->keys, all = head->all_keys;
    gather(desk->keys, batch->key + head->first_key * batch->key_row + head->at, batch->key_row, count, all, D, 1);
    gather(desk->values, batch->value + head->first_key * batch->value_row + head->at, batch->value_row, count, all, D, 1);
    if (!backward) return;
    memset(desk->key_gradient, 0, (size_t)(all * D) * sizeof(float));
    memset(desk->value_gradient, 0, (size_t)(all * D) * sizeof(float));
}

/* The queries from q on, as rows and transposed. */
static void read_queries(const Head *head, Desk *desk, int64_t q, int64_t count, int64_t all) {
    const Batch *batch = head->batch;
    const float *query = batch->query + (head->first + q) * batch->query_row + head->at;
    gather(desk->rows, query, batch->query_row, count, all, batch->features, batch->scale * INVERSE_OF_LN_2);
    transpose(desk->queries, desk->rows, all, batch->features, PANEL);
}

/* Scores become weights that still want a common factor: 2^(score - the largest so far). What was summed before shrinks accordingly. */
INLINE void weigh_as_wide_as(int wide, float *scores, int64_t keys, float *sums, int64_t D, lanes *most, lanes *total_weight) {
    lanes top[WIDE], shrink[WIDE];
    for (int n = 0; n < wide; n++) top[n] = most[n];
    for (int64_t i = 0; i < keys; i++)
        for (int n = 0; n < wide; n++) top[n] = larger(top[n], FROM(scores + i * PANEL + n * LANES));
    for (int n = 0; n < wide; n++) {
        lanes base = larger((lanes){0} - 3e38f, top[n]); /* a query that has seen nothing yet has -inf */
        shrink[n] = power_of_two(most[n] - base);
        total_weight[n] *= shrink[n];
        most[n] = top[n];
        top[n] = base;
    }
    lanes of_block[WIDE] = {{0}};
    for (int64_t i = 0; i < keys; i++)
        for (int n = 0; n < wide; n++) {
            float *place = scores + i * PANEL + n * LANES;
            of_block[n] += AT(place) = power_of_two(FROM(place) - top[n]);
        }
    for (int n = 0; n < wide; n++) total_weight[n] += of_block[n];
    for (int64_t d = 0; d < D; d++)
        for (int n = 0; n < wide; n++) AT(sums + d * PANEL + n * LANES) *= shrink[n];
}

INLINE void weigh(int64_t wide, float *scores, int64_t keys, float *sums, int64_t D, lanes *most, lanes *total_weight) {
    if (wide == WIDE) weigh_as_wide_as(WIDE, scores, keys, sums, D, most, total_weight);
    else weigh_as_wide_as((int)wide, scores, keys, sums, D, most, total_weight);
}

/* A panel of queries from q on. */
static void attend(const Head *head, Desk *desk, int64_t q, int64_t count) {
    const Batch *batch = head->batch;
    int64_t D = batch->features, end = keys_before(head, q + count), wide = width_of(count);
    lanes most[WIDE], sum[WIDE];
    for (int n = 0; n < WIDE; n++) most[n] = (lanes){0} - INFINITY, sum[n] = (lanes){0};
    float *contexts = desk->query_gradient, *scores = desk->weights, largest_scores[PANEL], sums[PANEL];
    memset(contexts, 0, (size_t)(PANEL * D) * sizeof(float));
    read_queries(head, desk, q, count, PANEL);
    for (int64_t k = 0; k < end; k += KEYS) {
        int64_t keys = at_most(KEYS, end - k);
        compare(scores, desk->keys + k * D, desk->queries, wide, keys, D);
        hide(head, scores, k, keys, q);
        weigh(wide, scores, keys, contexts, D, most, sum);
        sum_keys(contexts, desk->values + k * D, scores, wide, keys, D);
    }
    for (int n = 0; n < WIDE; n++) AT(largest_scores + n * LANES) = most[n], AT(sums + n * LANES) = sum[n];
    for (int64_t i = 0; i < count; i++) desk->factors[i] = sums[i] != 0 ? 1 / sums[i] : 0;
    for (int64_t i = 0; batch->saved && i < count; i++)
        batch->saved[(head->first + q + i) * batch->heads + head->head] = sums[i] != 0 ? largest_scores[i] + log2f(sums[i]) : INFINITY;
    transpose_back(batch->output + (head->first + q) * head->row + head->at, head->row, contexts, PANEL, count, D, desk->factors);
}

/* P^T of S^T, by the logarithms of their sums, and dS^T of dP^T. */
INLINE void gradients_of_scores(int wide, float *gradients, float *weights, int64_t keys, const float *logarithms, const float *means) {
    lanes logarithm[WIDE], mean[WIDE];
    for (int n = 0; n < wide; n++) logarithm[n] = FROM(logarithms + n * LANES), mean[n] = FROM(means + n * LANES);
    for (int64_t i = 0; i < keys * PANEL; i += PANEL)
        for (int n = 0; n < wide; n++) {
            lanes weight = power_of_two(FROM(weights + i + n * LANES) - logarithm[n]);
            AT(weights + i + n * LANES) = weight;
            AT(gradients + i + n * LANES) = weight * (FROM(gradients + i + n * LANES) - mean[n]);
        }
}

/* Weights P^T and gradients of scores dS^T of a panel of queries and a block of keys. */
static void weigh_again(const Head *head, Desk *desk, int64_t panel, int64_t k, int64_t keys, int64_t q, int64_t wide) {
    int64_t D = head->batch->features;
    float *weights = desk->weights + panel * KEYS * PANEL, *gradients = desk->gradients + panel * KEYS * PANEL;
    compare(weights, desk->keys + k * D, desk->queries + panel * PANEL * D, wide, keys, D);
    compare(gradients, desk->values + k * D, desk->outputs + panel * PANEL * D, wide, keys, D);
    hide(head, weights, k, keys, q + panel * PANEL);
    const float *logarithms = desk->logarithms + panel * PANEL, *means = desk->means + panel * PANEL;
    if (wide == WIDE) gradients_of_scores(WIDE, gradients, weights, keys, logarithms, means);
    else gradients_of_scores((int)wide, gradients, weights, keys, logarithms, means);
}

/* The gradients of the outputs from q on, as rows and transposed, and of each the mean gradient of its scores: rowsum(dO o O). */
static void read_gradients(const Head *head, Desk *desk, int64_t q, int64_t count, int64_t all) {
    const Batch *batch = head->batch;
    int64_t D = batch->features, before = (head->first + q) * head->row + head->at;
    gather(desk->output_rows, batch->output_gradient + before, head->row, count, all, D, 1);
    transpose(desk->outputs, desk->output_rows, all, D, PANEL);
    for (int64_t i = 0; i < all; i++) {
        lanes sum = {0};
        for (int64_t d = 0; i < count && d < D; d += LANES)
            sum += FROM(desk->output_rows + i * D + d) * FROM(batch->output + before + i * head->row + d);
        desk->means[i] = total(sum);
        desk->logarithms[i] = i < count ? batch->saved[(head->first + q + i) * batch->heads + head->head] : INFINITY;
    }
}

/* A block of queries from q on. */
static void attend_backward(const Head *head, Desk *desk, int64_t q, int64_t count) {
    const Batch *batch = head->batch;
    int64_t D = batch->features, panels = (count + PANEL - 1) / PANEL, end = keys_before(head, q + count);
    read_queries(head, desk, q, count, panels * PANEL);
    read_gradients(head, desk, q, count, panels * PANEL);
    memset(desk->query_gradient, 0, (size_t)(panels * PANEL * D) * sizeof(float));
    for (int64_t k = 0; k < end; k += KEYS) {
        int64_t keys = at_most(KEYS, end - k);
        for (int64_t panel = 0; panel < panels; panel++) {
            int64_t wide = width_of(count - panel * PANEL);
            weigh_again(head, desk, panel, k, keys, q, wide);
            sum_keys(desk->query_gradient + panel * PANEL * D, desk->keys + k * D, desk->gradients + panel * KEYS * PANEL, wide, keys, D);
        }
        sum_queries(desk->value_gradient + k * D, desk->weights, desk->output_rows, count, keys, D);
        sum_queries(desk->key_gradient + k * D, desk->gradients, desk->rows, count, keys, D);
    }
    for (int64_t i = 0; i < count; i++) desk->factors[i] = batch->scale;
    float *gradient = batch->query_gradient + (head->first + q) * head->row + head->at;
    for (int64_t i = 0; i < count; i += PANEL)
        transpose_back(gradient + i * head->row, head->row, desk->query_gradient + i * D, PANEL, at_most(PANEL, count - i), D, desk->factors + i);
}

/* A part of the queries of a head at a time, whoever comes first. Gradients have one part: all queries add to the keys'. */
typedef struct {
    const Batch *batch;
    int64_t parts, *next; /* of a head; the number of the next one, shared by all threads */
    float *held;
    int64_t most_keys;
    int backward;
} Share;

static void *work(void *argument) {
    const Share *share = argument;
    const Batch *batch = share->batch;
    int64_t D = batch->features, read = -1, number;
    Desk desk;
    lay_out(&desk, share->held, share->most_keys, D, share->backward);
    while ((number = __atomic_fetch_add(share->next, 1, __ATOMIC_RELAXED)) < batch->sentences * batch->heads * share->parts) {
        int64_t part = number % share->parts, which = number / share->parts, step = share->backward ? QUERIES : PANEL;
        Head head = head_of(batch, which / batch->heads, which % batch->heads);
        int64_t steps = (head.queries + step - 1) / step, from = steps * part / share->parts, to = steps * (part + 1) / share->parts;
        if (read != which && (from < to || share->backward)) {
            read_keys(&head, &desk, share->backward);
            read = which;
        }
        for (int64_t q = from * step; q < at_most(to * step, head.queries); q += step)
            (share->backward ? attend_backward : attend)(&head, &desk, q, at_most(step, head.queries - q));
        if (!share->backward) continue;
        int64_t before = head.first_key * head.row + head.at;
        scatter(batch->key_gradient + before, head.row, desk.key_gradient, head.keys, D, LN_2);
        scatter(batch->value_gradient + before, head.row, desk.value_gradient, head.keys, D, 1);
    }
    return NULL;
}

/* 0 if there was no memory. */
static int in_shares(const Batch *batch, int64_t threads, int backward) {
    Share shares[MOST_THREADS];
    Desk desk;
    int64_t most_keys = 0, scores = 0, next = 0, heads = at_least(batch->sentences * batch->heads, 1);
    for (int64_t b = 0; b < batch->sentences; b++) {
        int64_t keys = batch->key_starts[b + 1] - batch->key_starts[b];
        most_keys = at_least(most_keys, keys);
        scores += keys * (batch->query_starts[b + 1] - batch->query_starts[b]);
    }
    threads = worth_starting(threads, 2 * scores * batch->heads * batch->features);
    int64_t parts = backward || threads == 1 ? 1 : (4 * threads + heads - 1) / heads;
    int64_t size = lay_out(&desk, NULL, most_keys, batch->features, backward);
    float *held = malloc((size_t)(size * threads + LINE) * sizeof(float));
    if (!held) return 0;
    float *aligned = held + (LINE - (uintptr_t)held / sizeof(float) % LINE) % LINE;
    for (int64_t thread = 0; thread < threads; thread++)
        shares[thread] = (Share){batch, parts, &next, aligned + thread * size, most_keys, backward};
    in_threads(work, shares, sizeof(Share), threads);
    free(held);
    return 1;
}

int64_t saccade_layout(void) { return 100 * LAYOUT + LANES; }

int saccade_attend_long(const Batch *batch, int64_t threads) { return in_shares(batch, threads, 0); }

int saccade_attend_long_backward(const Batch *batch, int64_t threads) { return in_shares(batch, threads, 1); }
