// Native CPU kernels of the reference runtime. One idea: every output element is computed from its own row alone, in
// one fixed order of additions, so that a row's result does not depend on how many other rows share the pass. Weights
// are read once per eight rows, which is what makes verifying several tokens cost little more than generating one.
//
// Written with the compiler's vector extensions: the same source gives AVX-512, AVX2 or NEON code under -march=native.
// All matrices are row-major; T is float or bfloat16 (stored as uint16_t); arithmetic is float32.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using bf16 = uint16_t;
constexpr int LANES = 16;
typedef float vf __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(64), aligned(2), may_alias));

inline float to_float(float v) { return v; }
inline float to_float(bf16 v) {
  uint32_t bits = uint32_t(v) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

inline void store(float* p, float v) { *p = v; }
inline void store(bf16* p, float v) {  // round to nearest even; a NaN stays a NaN
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { *p = bf16((bits >> 16) | 0x40); return; }
  *p = bf16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Adds the two halves of a vector until one number is left.
inline float sum(vf v) {
  typedef float v8 __attribute__((vector_size(32)));
  typedef float v4 __attribute__((vector_size(16)));
  v8 h[2];
  std::memcpy(h, &v, 64);
  h[0] += h[1];
  v4 q[2];
  std::memcpy(q, h, 32);
  q[0] += q[1];
  return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

// A block is 32 elements. Two vectors of a block: the even and the odd elements for bfloat16 (one load, a shift and a
// mask), the first and the second half for float. Activations are laid out in the same order by `unpack`.
constexpr int BLOCK = 32;
template <class T> struct Pair { vf a, b; };

inline Pair<bf16> load(const bf16* p) {
  vu w = *reinterpret_cast<const vu*>(p);
  return {reinterpret_cast<vf>(w << 16), reinterpret_cast<vf>(w & 0xffff0000u)};
}
inline Pair<float> load(const float* p) {
  return {*reinterpret_cast<const vf*>(p), *reinterpret_cast<const vf*>(p + LANES)};
}

inline void unpack(const float* src, float* dst, int64_t blocks) { std::memcpy(dst, src, blocks * BLOCK * 4); }
inline void unpack(const bf16* src, float* dst, int64_t blocks) {
  for (int64_t k = 0; k < blocks; ++k) {
    Pair<bf16> w = load(src + k * BLOCK);
    *reinterpret_cast<vf*>(dst + k * BLOCK) = w.a;
    *reinterpret_cast<vf*>(dst + k * BLOCK + LANES) = w.b;
  }
}
// The inverse for a vector of floats in block order: out[i] in element order.
inline int64_t element(int64_t lane_in_block, float) { return lane_in_block; }
inline int64_t element(int64_t lane, bf16) { return lane < LANES ? 2 * lane : 2 * (lane - LANES) + 1; }

// How far ahead of its use a weight is asked for, in elements; found by trying 1024 to 4096 (with rows of 576 to 8960).
constexpr int64_t PREFETCH = 4096;

// R weight rows times N activation rows. Accumulators stay in registers; one accumulator per product, so the order of
// additions is the same for every R and N.
template <class T, class O, int R, int N>
inline void tile(const float* x, int64_t x_stride, const T* w, int64_t in, const T* x_raw, const T* bias, O* y,
                 int64_t y_stride) {
  vf acc[R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) acc[r][n] = vf{};
  const int64_t blocks = in / BLOCK, ahead = std::min<int64_t>(R * in, PREFETCH);
  for (int64_t k = 0; k < blocks; ++k) {
    Pair<T> p[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const T* at = w + r * in + k * BLOCK;
      __builtin_prefetch(at + ahead);
      p[r] = load(at);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const float* row = x + n * x_stride + k * BLOCK;
      vf a = *reinterpret_cast<const vf*>(row), b = *reinterpret_cast<const vf*>(row + LANES);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        acc[r][n] += p[r].a * a;
        acc[r][n] += p[r].b * b;
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) {
      float s = sum(acc[r][n]);
      for (int64_t i = blocks * BLOCK; i < in; ++i) s += to_float(w[r * in + i]) * to_float(x_raw[n * in + i]);
      if (bias) s += to_float(bias[r]);
      store(y + n * y_stride + r, s);
    }
}

template <class T, class O, int N>
void rows(const float* x, int64_t xs, const T* w, int64_t in, const T* x_raw, const T* bias, O* y, int64_t ys,
          int64_t from, int64_t to) {
  constexpr int R = N <= 2 ? 8 : N <= 4 ? 6 : 3;
  int64_t o = from;
  for (; o + R <= to; o += R)
    tile<T, O, R, N>(x, xs, w + o * in, in, x_raw, bias ? bias + o : nullptr, y + o, ys);
  for (; o < to; ++o) tile<T, O, 1, N>(x, xs, w + o * in, in, x_raw, bias ? bias + o : nullptr, y + o, ys);
}

thread_local std::vector<float> scratch;

template <class T, class O>
void linear(const T* x, const T* w, const T* bias, O* y, int64_t n, int64_t out, int64_t in) {
  const int64_t blocks = in / BLOCK, xs = blocks * BLOCK;
  if (int64_t(scratch.size()) < n * xs) scratch.resize(n * xs);
  float* xf = scratch.data();
  const int64_t group = std::max<int64_t>(24, (128 * 1024) / (in * int64_t(sizeof(T))) / 24 * 24);  // stays in L2
  const int64_t groups = (out + group - 1) / group;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < n; ++i) unpack(x + i * in, xf + i * xs, blocks);
#pragma omp for schedule(static)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t from = g * group, to = std::min(out, from + group);
      for (int64_t i = 0; i < n; i += 8) {
        const float* xi = xf + i * xs;
        const T* xr = x + i * in;
        O* yi = y + i * out;
        switch (std::min<int64_t>(8, n - i)) {
          case 1: rows<T, O, 1>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          case 2: rows<T, O, 2>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          case 3: rows<T, O, 3>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          case 4: rows<T, O, 4>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          case 5: rows<T, O, 5>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          case 6: rows<T, O, 6>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          case 7: rows<T, O, 7>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
          default: rows<T, O, 8>(xi, xs, w, in, xr, bias, yi, out, from, to); break;
        }
      }
    }
  }
}

// h += delta (when given), rounded to T; out = h / rms(h) * weight.
template <class T>
void add_norm(T* h, const T* delta, const float* weight, float eps, T* out, int64_t n, int64_t size) {
#pragma omp parallel for schedule(static) if (n > 1)
  for (int64_t i = 0; i < n; ++i) {
    T* hi = h + i * size;
    vf acc{};
    float tail = 0;
    if (delta)
      for (int64_t j = 0; j < size; ++j) store(hi + j, to_float(hi[j]) + to_float(delta[i * size + j]));
    int64_t j = 0;
    for (; j + LANES <= size; j += LANES) {
      vf v;
      for (int l = 0; l < LANES; ++l) v[l] = to_float(hi[j + l]);
      acc += v * v;
    }
    for (; j < size; ++j) tail += to_float(hi[j]) * to_float(hi[j]);
    const float scale = 1.0f / std::sqrt((sum(acc) + tail) / float(size) + eps);
    for (j = 0; j < size; ++j) store(out + i * size + j, to_float(hi[j]) * scale * weight[j]);
  }
}

// exp for x <= 0, relative error about 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2] (Taylor to degree 7).
inline vf vexp(vf x) {
  x = x < -87.0f ? vf{} - 87.0f : x;
  vf t = x * 1.44269504088896341f;
  vi n = __builtin_convertvector(t - 0.5f, vi);  // t <= 0, so truncation rounds to nearest
  vf f = __builtin_convertvector(n, vf);
  vf r = x - f * 0.693359375f;
  r = r - f * -2.12194440e-4f;
  vf p = vf{} + 1.9841270e-4f;
  p = p * r + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * reinterpret_cast<vf>((n + 127) << 23);
}

template <class T>
void silu_mul(const T* gate_up, T* out, int64_t n, int64_t size) {
#pragma omp parallel for schedule(static) collapse(2)
  for (int64_t i = 0; i < n; ++i)
    for (int64_t b = 0; b < (size + 511) / 512; ++b) {
      const T *gate = gate_up + i * 2 * size, *up = gate + size;
      int64_t j = b * 512;
      const int64_t end = std::min(size, j + 512);
      for (; j < end; j += LANES) {
        const int64_t lanes = std::min<int64_t>(LANES, end - j);
        vf g{}, u{};
        for (int64_t l = 0; l < lanes; ++l) { g[l] = to_float(gate[j + l]); u[l] = to_float(up[j + l]); }
        vf e = vexp(g < 0.0f ? g : vf{} - g);  // exp(-|g|)
        vf y = u * g * (g < 0.0f ? e : vf{} + 1.0f) / (e + 1.0f);
        for (int64_t l = 0; l < lanes; ++l) store(out + i * size + j + l, y[l]);
      }
    }
}

template <class T>
void head_norm(T* head, const float* weight, float eps, int64_t dim) {
  float s = 0;
  for (int64_t d = 0; d < dim; ++d) s += to_float(head[d]) * to_float(head[d]);
  const float scale = 1.0f / std::sqrt(s / float(dim) + eps);
  for (int64_t d = 0; d < dim; ++d) store(head + d, to_float(head[d]) * scale * weight[d]);
}

template <class T>
void rotate(const T* head, const float* cos, const float* sin, T* out, int64_t dim) {
  const int64_t half = dim / 2;
  for (int64_t d = 0; d < half; ++d) {
    const float a = to_float(head[d]), b = to_float(head[d + half]);
    store(out + d, a * cos[d] - b * sin[d]);
    store(out + d + half, b * cos[d] + a * sin[d]);
  }
}

struct Attention {
  int64_t tokens, heads, kv_heads, dim, kv_stride;  // kv_stride: cache tokens per head
  int64_t window;                                   // 0: none
  float eps;
};

// Attention of one token's query heads that share one key head, over keys [first, last] of its span.
template <class T>
void attend_group(const T* q, const T* keys, const T* values, int64_t count, int64_t group, int64_t dim, float scale,
                  float* scores, float* qf, T* out) {
  const int64_t blocks = dim / BLOCK;
  for (int64_t g = 0; g < group; ++g) {
    unpack(q + g * dim, qf, blocks);
    float top = -INFINITY;
    for (int64_t s = 0; s < count; ++s) {
      vf acc{};
      const T* key = keys + s * dim;
      for (int64_t k = 0; k < blocks; ++k) {
        Pair<T> p = load(key + k * BLOCK);
        acc += p.a * *reinterpret_cast<const vf*>(qf + k * BLOCK);
        acc += p.b * *reinterpret_cast<const vf*>(qf + k * BLOCK + LANES);
      }
      float v = sum(acc);
      for (int64_t d = blocks * BLOCK; d < dim; ++d) v += to_float(key[d]) * to_float(q[g * dim + d]);
      scores[s] = v * scale;
      top = std::max(top, scores[s]);
    }
    // Padding lanes get weight exp(-inf) = 0; the sum runs over whole vectors in order, whatever `count` is.
    vf total{};
    for (int64_t s = 0; s < count; s += LANES) {
      vf v = vf{} - 1e30f;
      const int64_t lanes = std::min<int64_t>(LANES, count - s);
      for (int64_t l = 0; l < lanes; ++l) v[l] = scores[s + l] - top;
      v = vexp(v);
      for (int64_t l = lanes; l < LANES; ++l) v[l] = 0;
      total += v;
      for (int64_t l = 0; l < lanes; ++l) scores[s + l] = v[l];
    }
    const float norm = 1.0f / sum(total);
    for (int64_t k = 0; k < blocks; ++k) {
      vf a{}, b{};
      for (int64_t s = 0; s < count; ++s) {
        Pair<T> p = load(values + s * dim + k * BLOCK);
        a += p.a * scores[s];
        b += p.b * scores[s];
      }
      for (int l = 0; l < LANES; ++l) {
        store(out + g * dim + k * BLOCK + element(l, T{}), a[l] * norm);
        store(out + g * dim + k * BLOCK + element(l + LANES, T{}), b[l] * norm);
      }
    }
    for (int64_t d = blocks * BLOCK; d < dim; ++d) {
      float v = 0;
      for (int64_t s = 0; s < count; ++s) v += scores[s] * to_float(values[s * dim + d]);
      store(out + g * dim + d, v * norm);
    }
  }
}

// Norms, rotates and stores the pass's keys and values, then attends. qkv [tokens, (heads + 2 kv_heads) dim];
// cos, sin [tokens, dim / 2]; slot[t]: where token t lies in the cache; start[t]: where its sequence begins.
template <class T>
void attend(const Attention& a, T* qkv, const float* cos, const float* sin, const int64_t* slot, const int64_t* start,
            const float* q_norm, const float* k_norm, T* keys, T* values, T* out) {
  const int64_t width = (a.heads + 2 * a.kv_heads) * a.dim, group = a.heads / a.kv_heads, half = a.dim / 2;
  const float scale = 1.0f / std::sqrt(float(a.dim));
  int64_t longest = 0;
  for (int64_t t = 0; t < a.tokens; ++t) longest = std::max(longest, slot[t] - start[t] + 1);
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t t = 0; t < a.tokens; ++t) {
      T* row = qkv + t * width;
      for (int64_t h = 0; h < a.heads + a.kv_heads; ++h) {
        T* head = row + h * a.dim;
        const bool is_query = h < a.heads;
        if (q_norm) head_norm(head, is_query ? q_norm : k_norm, a.eps, a.dim);
        T* to = is_query ? head : keys + ((h - a.heads) * a.kv_stride + slot[t]) * a.dim;
        rotate(head, cos + t * half, sin + t * half, to, a.dim);
      }
      for (int64_t h = 0; h < a.kv_heads; ++h)
        std::memcpy(values + (h * a.kv_stride + slot[t]) * a.dim, row + (a.heads + a.kv_heads + h) * a.dim,
                    a.dim * sizeof(T));
    }
    std::vector<float> scores(longest), qf(a.dim);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < a.tokens * a.kv_heads; ++task) {
      const int64_t t = task / a.kv_heads, h = task % a.kv_heads;
      const int64_t first = a.window ? std::max(start[t], slot[t] - a.window + 1) : start[t];
      const int64_t at = (h * a.kv_stride + first) * a.dim;
      attend_group(qkv + t * width + h * group * a.dim, keys + at, values + at, slot[t] - first + 1, group, a.dim,
                   scale, scores.data(), qf.data(), out + (t * a.heads + h * group) * a.dim);
    }
  }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define FOR_TYPE(T, SUFFIX)                                                                                          \
  EXPORT void linear_##SUFFIX(const T* x, const T* w, const T* bias, T* y, int64_t n, int64_t out, int64_t in) {     \
    linear<T, T>(x, w, bias, y, n, out, in);                                                                         \
  }                                                                                                                  \
  EXPORT void logits_##SUFFIX(const T* x, const T* w, float* y, int64_t n, int64_t out, int64_t in) {                \
    linear<T, float>(x, w, nullptr, y, n, out, in);                                                                  \
  }                                                                                                                  \
  EXPORT void add_norm_##SUFFIX(T* h, const T* delta, const float* weight, float eps, T* out, int64_t n,             \
                                int64_t size) {                                                                      \
    add_norm<T>(h, delta, weight, eps, out, n, size);                                                                \
  }                                                                                                                  \
  EXPORT void silu_mul_##SUFFIX(const T* gate_up, T* out, int64_t n, int64_t size) {                                 \
    silu_mul<T>(gate_up, out, n, size);                                                                              \
  }                                                                                                                  \
  EXPORT void attend_##SUFFIX(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim, int64_t kv_stride,       \
                              int64_t window, float eps, T* qkv, const float* cos, const float* sin,                 \
                              const int64_t* slot, const int64_t* start, const float* q_norm, const float* k_norm,   \
                              T* keys, T* values, T* out) {                                                          \
    attend<T>({tokens, heads, kv_heads, dim, kv_stride, window, eps}, qkv, cos, sin, slot, start, q_norm, k_norm,    \
              keys, values, out);                                                                                    \
  }

FOR_TYPE(bf16, bf16)
FOR_TYPE(float, f32)

EXPORT int kernels_abi() { return 1; }
