/* The gates of a GRU (Cho 2014) and their gradients, in one visit of each row.
 *
 *     r = s(x_r + h_r)      z = s(x_z + h_z)      n = tanh(x_n + r h_n)      h' = (1 - z) n + z h
 *
 * x and h are the input's and the state's part of the gates, rows of 3 D floats: r, z and n side by side. With g the gradient of h':
 *
 *     dn = g (1 - z) (1 - n^2)      dz = g (h - n) z (1 - z)      dr = dn h_n r (1 - r)
 *     x: [dr, dz, dn]      h: [dr, dz, r dn]      state: g z
 *
 * Called by gru.py, which has checked everything.
 */

#include "../attention/lanes.h"

typedef struct {
    const float *from_input, *from_state, *state; /* rows of 3 D, 3 D and D, as far apart as their next three numbers say */
    int64_t input_row, state_gates_row, state_row;
    float *opened, *next;       /* r, z and n (rows, 3 D), h' (rows, D) */
    const float *next_gradient; /* (rows, D) */
    float *input_gradient, *gates_gradient, *state_gradient;
    int64_t rows, features, backward;
} Gates;

enum { ALL_BUT_SIGN = 0x7fffffff };

INLINE lanes chosen(whole where, lanes yes, lanes no) { return (lanes)(((whole)yes & where) | ((whole)no & ~where)); }

/* 1 / (1 + e^-x), by the exponential of -|x|, which cannot overflow */
INLINE lanes sigmoid(lanes x) {
    lanes small = exponential(-(lanes)((whole)x & ALL_BUT_SIGN)), share = 1.0f / (1.0f + small);
    return chosen(x >= (lanes){0}, share, small * share);
}

/* By e^-2|x|; near 0, where that would leave few digits, by a series. */
INLINE lanes tangent(lanes x) {
    lanes size = (lanes)((whole)x & ALL_BUT_SIGN), small = exponential(-2.0f * size), square = x * x;
    lanes far = (lanes)((whole)((1.0f - small) / (1.0f + small)) | ((whole)x & ~ALL_BUT_SIGN));
    lanes near = x + x * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315 + square * (62.0f / 2835))));
    return chosen(size < (lanes){0} + 0.25f, near, far);
}

INLINE void step(const Gates *gates, int64_t i) {
    int64_t D = gates->features;
    const float *x = gates->from_input + i * gates->input_row, *h = gates->from_state + i * gates->state_gates_row;
    const float *state = gates->state + i * gates->state_row;
    float *opened = gates->opened + i * 3 * D, *next = gates->next + i * D;
    for (int64_t j = 0; j < D; j += LANES) {
        lanes r = sigmoid(FROM(x + j) + FROM(h + j)), z = sigmoid(FROM(x + D + j) + FROM(h + D + j));
        lanes n = tangent(FROM(x + 2 * D + j) + r * FROM(h + 2 * D + j));
        AT(opened + j) = r;
        AT(opened + D + j) = z;
        AT(opened + 2 * D + j) = n;
        AT(next + j) = n + z * (FROM(state + j) - n);
    }
}

INLINE void step_backward(const Gates *gates, int64_t i) {
    int64_t D = gates->features;
    const float *h = gates->from_state + i * gates->state_gates_row, *state = gates->state + i * gates->state_row;
    const float *opened = gates->opened + i * 3 * D, *gradient = gates->next_gradient + i * D;
    float *of_x = gates->input_gradient + i * 3 * D, *of_h = gates->gates_gradient + i * 3 * D, *of_state = gates->state_gradient + i * D;
    for (int64_t j = 0; j < D; j += LANES) {
        lanes r = FROM(opened + j), z = FROM(opened + D + j), n = FROM(opened + 2 * D + j), g = FROM(gradient + j);
        lanes dn = g * (1.0f - z) * (1.0f - n * n), dz = g * (FROM(state + j) - n) * z * (1.0f - z);
        lanes dr = dn * FROM(h + 2 * D + j) * r * (1.0f - r);
        AT(of_x + j) = AT(of_h + j) = dr;
        AT(of_x + D + j) = AT(of_h + D + j) = dz;
        AT(of_x + 2 * D + j) = dn;
        AT(of_h + 2 * D + j) = r * dn;
        AT(of_state + j) = g * z;
    }
}

/* One thread: a step of a decoder is over before a second one has begun. */
int saccade_gru(const Gates *gates, int64_t threads) {
    (void)threads;
    for (int64_t i = 0; i < gates->rows; i++) gates->backward ? step_backward(gates, i) : step(gates, i);
    return 1;
}
