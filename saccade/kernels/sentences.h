/* The sentences of a batch stand one after the other in the rows of Q, K and V, each row with all heads side by side, so they need no
 * padding. Each kernel over them says what it saves for backward.
 *
 * Axis legend: B sentences, H heads, Q queries, K keys, D features of a head.
 */

#pragma once

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
    float *saved;                          /* for backward; null: not needed */
    float *query_gradient, *key_gradient, *value_gradient;
} Batch;
