/* A row for every matrix: y = x M, or y = x M^T, with a matrix of its own for each row. What attention sums at every step of a loop.
 *
 * Called by row_kernel.py, which has checked everything.
 *
 * Axis legend: B rows and matrices, K rows of a matrix, D columns of it, a multiple of LANES.
 */

#include "lanes.h"

typedef struct {
    const float *x, *matrices; /* (B, K) or, turned, (B, D); (B, K, D) */
    float *y;                  /* (B, D) or, turned, (B, K) */
    int64_t batch, rows, columns, turned;
} Products;

INLINE void multiply(const float *x, const float *matrix, float *y, int64_t rows, int64_t columns) {
    int64_t j = 0;
    for (; j + 4 * LANES <= columns; j += 4 * LANES) {
        lanes sum[4] = {{0}};
        for (int64_t k = 0; k < rows; k++)
            for (int n = 0; n < 4; n++) sum[n] += x[k] * FROM(matrix + k * columns + j + n * LANES);
        for (int n = 0; n < 4; n++) AT(y + j + n * LANES) = sum[n];
    }
    for (; j < columns; j += LANES) {
        lanes sum = {0};
        for (int64_t k = 0; k < rows; k++) sum += x[k] * FROM(matrix + k * columns + j);
        AT(y + j) = sum;
    }
}

INLINE void multiply_turned(const float *x, const float *matrix, float *y, int64_t rows, int64_t columns) {
    for (int64_t k = 0; k < rows; k++) {
        lanes sum = {0};
        for (int64_t j = 0; j < columns; j += LANES) sum += FROM(x + j) * FROM(matrix + k * columns + j);
        y[k] = total(sum);
    }
}

int saccade_rows(const Products *products, int64_t threads) {
    (void)threads; /* over before a second one has begun */
    int64_t K = products->rows, D = products->columns;
    for (int64_t b = 0; b < products->batch; b++) {
        const float *matrix = products->matrices + b * K * D;
        if (products->turned)
            multiply_turned(products->x + b * D, matrix, products->y + b * K, K, D);
        else
            multiply(products->x + b * K, matrix, products->y + b * D, K, D);
    }
    return 1;
}
