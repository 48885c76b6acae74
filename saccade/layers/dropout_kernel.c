/* Dropout in one visit of each number, and nothing kept for the way back: who is dropped follows from a seed and from where it stands.
 *
 *     y = to + s kept x      where kept is 0 with a chance of dropped / 256, 1 otherwise
 *
 * Eight numbers in a row share 64 random bits, those of their place in a sequence that is mixed as by Steele's splitmix (2014).
 * Called by dropout.py, which has checked everything.
 */

#include <string.h>

#include "../attention/lanes.h"

typedef unsigned char bytes __attribute__((vector_size(LANES)));
typedef signed char signs __attribute__((vector_size(LANES)));

typedef struct {
    const float *x, *to; /* to: null for 0 */
    float *y;            /* may be x */
    int64_t count;
    uint64_t seed;
    float scale;
    int32_t dropped;   /* of 256 */
    int64_t rectified; /* whether x is max(x, 0) */
} Numbers;

typedef struct {
    const Numbers *numbers;
    int64_t from, to;
} Share;

/* All bits of those who are kept. */
INLINE whole kept(const Numbers *numbers, int64_t place) {
    uint64_t mixed = numbers->seed + (uint64_t)(place / LANES) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    bytes drawn;
    memcpy(&drawn, &mixed, sizeof drawn);
    signs stay = (signs)(drawn >= (bytes){0} + (unsigned char)numbers->dropped);
    return __builtin_convertvector(stay, whole);
}

INLINE lanes dropped(const Numbers *numbers, int64_t place, lanes x, lanes to) {
    if (numbers->rectified) {
        whole positive = x > (lanes){0};
        whole strange = x != x; /* what is no number stays none */
        x = (lanes)((whole)x & (positive | strange));
    }
    return to + (lanes)((whole)(x * numbers->scale) & kept(numbers, place));
}

static void *work(void *given) {
    const Share *share = given;
    const Numbers *numbers = share->numbers;
    int64_t i = share->from;
    for (; i + LANES <= share->to; i += LANES)
        AT(numbers->y + i) = dropped(numbers, i, FROM(numbers->x + i), numbers->to ? FROM(numbers->to + i) : (lanes){0});
    lanes x = {0}, to = {0};
    for (int64_t j = i; j < share->to; j++) {
        x[j - i] = numbers->x[j];
        if (numbers->to) to[j - i] = numbers->to[j];
    }
    x = dropped(numbers, i, x, to);
    for (int64_t j = i; j < share->to; j++) numbers->y[j] = x[j - i];
    return NULL;
}

int saccade_drop(const Numbers *numbers, int64_t threads) {
    Share shares[MOST_THREADS];
    int64_t parts = numbers->count / LANES;
    threads = worth_starting(threads, 4 * numbers->count);
    for (int64_t thread = 0; thread < threads; thread++)
        shares[thread] = (Share){numbers, parts * thread / threads * LANES,
                                 thread == threads - 1 ? numbers->count : parts * (thread + 1) / threads * LANES};
    in_threads(work, shares, sizeof(Share), threads);
    return 1;
}
