/* Rows of a head as products want them: one after the other, or transposed in groups.
 *
 * Axis legend: D features of a head, a multiple of 16.
 */

#pragma once

#include <string.h>

#include "lanes.h"

INLINE int64_t rounded_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Rows as they are, one after the other, times `factor`, and zeros up to `all`. */
static void gather(float *to, const float *from, int64_t from_row, int64_t count, int64_t all, int64_t D, float factor) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < D; d += LANES) AT(to + i * D + d) = FROM(from + i * from_row + d) * factor;
    memset(to + count * D, 0, (size_t)((all - count) * D) * sizeof(float));
}

/* The reverse. */
static void scatter(float *to, int64_t to_row, const float *from, int64_t count, int64_t D, float factor) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < D; d += LANES) AT(to + i * to_row + d) = FROM(from + i * D + d) * factor;
}

/* Rows (count, D) transposed in groups of `width`: each (D, width). All three are multiples of 8. */
static void transpose(float *to, const float *from, int64_t count, int64_t D, int64_t width) {
    for (int64_t i = 0; i < count; i += EIGHT)
        for (int64_t d = 0; d < D; d += EIGHT)
            transpose_square(to + i / width * width * D + i % width + d * width, width, from + i * D + d, D);
}

/* A group (D, width) transposed back into rows, each of which is multiplied by a factor of its own. */
static void transpose_back(float *to, int64_t to_row, const float *from, int64_t width, int64_t count, int64_t D, const float *factors) {
    for (int64_t i = 0; i < count; i += EIGHT)
        for (int64_t d = 0; d < D; d += EIGHT) {
            float square[EIGHT * EIGHT];
            transpose_square(square, EIGHT, from + d * width + i, width);
            for (int64_t j = 0; j < at_most(EIGHT, count - i); j++)
                *(eight *)(to + (i + j) * to_row + d) = *(eight *)(square + j * EIGHT) * factors[i + j];
        }
}
