// Series for logarithm and tanh; see arithmetic.hpp.
#include "transport/congestion/astraea/arithmetic.hpp"

#include <cfloat>
#include <cmath>

#ifndef LOOMNET_NO_FUSED_MULTIPLY_ADD
#error "compile this folder's sources with -ffp-contract=off, as core/CMakeLists.txt does"
#endif

namespace loomnet::astraea {

static_assert(FLT_EVAL_METHOD == 0, "sums must be rounded to their type");

double log2(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact; 0.5 <= m < 1
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh(s), |s| <= 0.1716: terms from s^23 / 23 on are below 1e-18.
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int n = 21; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return exponent + 2 * s * sum * 1.4426950408889634;  // 1 / ln 2
}

// 2^k e^r with |r| <= ln(2) / 2.
double exp2(double x) {
  const double k = std::floor(x + 0.5);
  const double r = (x - k) * 0.69314718055994531;
  double series = 1;
  for (int n = 17; n >= 1; --n) series = 1 + series * r / n;
  return std::ldexp(series, static_cast<int>(k));
}

double tanh(double x) {
  const double size = std::fabs(x);
  if (size < 1e-8) return x;
  if (size > 20) return x > 0 ? 1 : -1;
  if (size < 0.3) {
    // Below, 1 - e loses digits; the continued fraction of Lambert does not.
    const double square = x * x;
    double below = 19;
    for (int n = 17; n >= 1; n -= 2) below = n + square / below;
    return x / below;
  }
  const double e = exp2(-2 * size * 1.4426950408889634);
  const double result = (1 - e) / (1 + e);
  return x > 0 ? result : -result;
}

bool rounds_products() {
  // (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24 exactly; a product rounded to float first loses it.
  volatile float a = 1.000244140625f, c = -1.00048828125f;
  const float x = a, y = a, z = c;
  return x * y + z == 0.0f;
}

}  // namespace loomnet::astraea
