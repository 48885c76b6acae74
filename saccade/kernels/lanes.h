/* What the kernels share: eight floats at a time, or sixteen, and work in several threads. For gcc and clang, with AVX2 or AVX-512. */

#pragma once

#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
enum { LAYOUT = 2 /* of the structs of all kernels: one more whenever one of them changes, and in compiled.py */ };
enum { LINE = 16 /* floats of a cache line */, MOST_THREADS = 64 };

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline, unused))
#define AT(place) (*(lanes *)(place))
#define FROM(place) (*(const lanes *)(place))

/* e^x for x <= 0 to about one unit in the last place; 0 below -87. */
INLINE lanes exponential(lanes x) {
    const lanes none = {0};
    whole tiny = x < none - 87.0f;
    lanes shift = none + 12582912.0f;      /* 1.5 * 2^23: adding it rounds to a whole number in the lowest bits */
    lanes power = x * 1.44269504f + shift; /* x / ln 2 */
    whole exponent = (whole)power + 127;
    power -= shift;
    lanes rest = x - power * 0.693359375f; /* ln 2 in two parts */
    rest += power * 2.12194440e-4f;
    lanes series = none + 1.9875691500e-4f;
    series = series * rest + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    series = series * rest * rest + rest + 1.0f;
    series *= (lanes)(exponent << 23);
    return (lanes)((whole)series & ~tiny);
}

/* The second where either is no number, as the instruction has it. */
INLINE lanes larger(lanes first, lanes second) {
#ifdef __AVX512F__
    return (lanes)_mm512_max_ps((__m512)first, (__m512)second);
#else
    return (lanes)_mm256_max_ps((__m256)first, (__m256)second);
#endif
}

/* 2^x for x <= 0 to about one unit in the last place; 0 below -126.5. */
INLINE lanes power_of_two(lanes x) {
    const lanes none = {0};
    x = larger(none - 127.0f, x);
    lanes shift = none + 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number in the lowest bits */
    lanes rounded = x + shift, rest = x - (rounded - shift);
    lanes series = none + 1.326472718e-3f;
    series = series * rest + 9.671512646e-3f;
    series = series * rest + 5.550733743e-2f;
    series = series * rest + 2.402224209e-1f;
    series = series * rest + 6.931469776e-1f;
    series = series * rest + 1.0f;
    return series * (lanes)(((whole)rounded + 127) << 23);
}

INLINE float largest(lanes x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

INLINE float total(lanes x) {
    float sum = 0;
    for (int i = 0; i < LANES; i += 4) sum += (x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]);
    return sum;
}

enum { EIGHT = 8 };
typedef float eight __attribute__((vector_size(4 * EIGHT), aligned(4), may_alias));
typedef int32_t eight_whole __attribute__((vector_size(4 * EIGHT)));

#ifdef __clang__
#define MERGED(first, second, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#else
#define MERGED(first, second, ...) __builtin_shuffle(first, second, (eight_whole){__VA_ARGS__})
#endif

/* Eight rows of eight floats become columns. */
INLINE void transpose_square(float *to, int64_t to_row, const float *from, int64_t from_row) {
    eight pairs[EIGHT], fours[EIGHT];
    for (int i = 0; i < EIGHT; i += 2) {
        eight first = *(const eight *)(from + i * from_row), second = *(const eight *)(from + (i + 1) * from_row);
        pairs[i] = MERGED(first, second, 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[i + 1] = MERGED(first, second, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int half = 0; half < EIGHT; half += 4)
        for (int i = 0; i < 2; i++) {
            eight first = pairs[half + i], second = pairs[half + i + 2];
            fours[half + 2 * i] = MERGED(first, second, 0, 1, 8, 9, 4, 5, 12, 13);
            fours[half + 2 * i + 1] = MERGED(first, second, 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < EIGHT / 2; i++) {
        *(eight *)(to + i * to_row) = MERGED(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(eight *)(to + (i + 4) * to_row) = MERGED(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

INLINE int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

INLINE int64_t at_least(int64_t count, int64_t least) { return count > least ? count : least; }

/* How many of the threads that may be had are worth starting for so many multiplications: each for some tenths of a millisecond. */
INLINE int64_t worth_starting(int64_t threads, int64_t multiplications) {
    return at_least(at_most(at_most(threads, MOST_THREADS), multiplications >> 22), 1);
}

/* work(share) for every one of `count` shares of `size` bytes each, side by side; those for which no thread could be had come last. */
INLINE void in_threads(void *(*work)(void *), void *shares, size_t size, int64_t count) {
    pthread_t others[MOST_THREADS];
    int64_t started = 1;
    while (started < count && !pthread_create(&others[started], NULL, work, (char *)shares + started * size)) started++;
    work(shares);
    for (int64_t i = 1; i < started; i++) pthread_join(others[i], NULL);
    for (int64_t i = started; i < count; i++) work((char *)shares + i * size);
}
