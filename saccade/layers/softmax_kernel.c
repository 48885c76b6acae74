/* The softmax of the last layer, its loss and the gradient of its logits, in one visit of each row.
 *
 *     x = logits + bias      nll = log sum e^x - x[target]      gradient = softmax(x) + (smoothing - 1) onehot(target)
 *
 * A row of a vocabulary's logits fits into a cache, so what torch does in half a dozen passes over memory takes one. What label smoothing
 * adds for every word alike is for the caller (cross_entropy.py), who has checked everything.
 */

#include "../attention/lanes.h"

typedef struct {
    float *logits; /* (rows, words): become the gradient where it is wanted */
    const float *bias;
    const int64_t *targets;
    float *target_logit, *nll; /* (rows,) */
    float *bias_gradient;      /* (words,), added to; null: no gradient is wanted */
    int64_t rows, words;
    float of_target; /* smoothing - 1 */
} Rows;

/* The last lanes of a row that has no multiple of LANES, with `filled` behind its end. */
INLINE lanes some(const float *from, int64_t count, float filled) {
    lanes x = (lanes){0} + filled;
    for (int64_t i = 0; i < count; i++) x[i] = from[i];
    return x;
}

INLINE void put_some(float *to, int64_t count, lanes x) {
    for (int64_t i = 0; i < count; i++) to[i] = x[i];
}

static void *work(void *given) {
    const Rows *rows = given;
    int64_t words = rows->words, whole_lanes = words / LANES * LANES, rest = words - whole_lanes;
    const float *bias = rows->bias;
    float *of_bias = rows->bias_gradient;
    for (int64_t i = 0; i < rows->rows; i++) {
        float *row = rows->logits + i * words;
        int64_t target = rows->targets[i];
        lanes most = (lanes){0} - INFINITY, sum = {0};
        for (int64_t j = 0; j < whole_lanes; j += LANES) most = larger(AT(row + j) += FROM(bias + j), most);
        lanes last = some(row + whole_lanes, rest, -INFINITY) + some(bias + whole_lanes, rest, 0);
        float top = largest(larger(last, most)), logit = target < whole_lanes ? row[target] : last[target - whole_lanes];
        for (int64_t j = 0; j < whole_lanes; j += LANES) sum += AT(row + j) = exponential(AT(row + j) - top);
        sum += last = exponential(last - top);
        float all = total(sum);
        rows->target_logit[i] = logit;
        rows->nll[i] = (float)(log((double)all) + top - logit);
        if (!of_bias) continue;
        float share = 1 / all;
        for (int64_t j = 0; j < whole_lanes; j += LANES) AT(of_bias + j) += AT(row + j) *= share;
        last *= share;
        put_some(row + whole_lanes, rest, last);
        for (int64_t j = 0; j < rest; j++) of_bias[whole_lanes + j] += last[j];
        row[target] += rows->of_target;
        of_bias[target] += rows->of_target;
    }
    return NULL;
}

/* 0 if there was no memory. */
int saccade_softmax_rows(const Rows *rows, int64_t threads) {
    Rows shares[MOST_THREADS];
    threads = worth_starting(at_most(threads, rows->rows), 8 * rows->rows * rows->words); /* an exponential is several multiplications */
    float *apart = rows->bias_gradient ? calloc((size_t)(threads * rows->words), sizeof(float)) : NULL;
    if (rows->bias_gradient && !apart) return 0;
    for (int64_t thread = 0; thread < threads; thread++) {
        int64_t from = rows->rows * thread / threads, to = rows->rows * (thread + 1) / threads;
        shares[thread] = *rows;
        shares[thread].rows = to - from;
        shares[thread].logits += from * rows->words;
        shares[thread].targets += from;
        shares[thread].target_logit += from;
        shares[thread].nll += from;
        if (apart) shares[thread].bias_gradient = apart + thread * rows->words;
    }
    in_threads(work, shares, sizeof(Rows), threads);
    for (int64_t thread = 0; apart && thread < threads; thread++)
        for (int64_t j = 0; j < rows->words; j++) rows->bias_gradient[j] += apart[thread * rows->words + j];
    free(apart);
    return 1;
}
