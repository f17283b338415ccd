// float16 and bfloat16 to and from float: branch-free bit arithmetic that compilers vectorise,
// rounding to nearest even, NaN kept.
#pragma once

#include <bit>
#include <cstdint>

namespace loomnet {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

// Selection by mask: given a conditional, GCC moves the float arithmetic of one side into a branch
// and no longer vectorises the loop around it.
inline std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline BFloat16 to_bfloat16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  const std::uint32_t nan = u >> 16 | 0x40u;  // quiet; the payload must not round to infinity
  return {static_cast<std::uint16_t>(select((u & 0x7fff'ffffu) > 0x7f80'0000u, nan, rounded))};
}

inline float to_float(Float16 x) {
  // Exponents are moved by 112 in the integer; infinities and NaN by 112 more; subnormals are built
  // as a normal number whose implicit one is then subtracted, which is exact.
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(x.bits & 0x7fffu) << 13;
  const std::uint32_t normal = magnitude + (112u << 23);
  const std::uint32_t special = normal + (112u << 23);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f);
  const std::uint32_t exponent = x.bits & 0x7c00u;
  const std::uint32_t u = select(exponent == 0x7c00u, special, select(exponent == 0, subnormal, normal));
  return std::bit_cast<float>(u | sign);
}

inline Float16 to_float16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = u >> 16 & 0x8000u;
  const std::uint32_t a = u & 0x7fff'ffffu;
  // Normal results: re-bias, round to nearest even on the 13 bits that go; a carry into the
  // exponent is the right answer, up to infinity.
  const std::uint32_t normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
  // Below 2^-14: adding 1/2 aligns the subnormal unit 2^-24 with float's last bit, so the addition
  // itself rounds to nearest even.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  std::uint32_t h = select(a < 0x3880'0000u, subnormal, normal);
  h = select(a >= 0x4780'0000u, 0x7c00u, h);  // 65536 and more; 65520.. carried into infinity above
  h = select(a > 0x7f80'0000u, 0x7e00u | (a >> 13 & 0x3ffu), h);
  return {static_cast<std::uint16_t>(h | sign)};
}

}  // namespace loomnet
