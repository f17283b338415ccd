// Any bytes as Astraea's policy file: it is refused in one line, or it is a policy that is written as it was
// read and whose actions lie in their range for any input.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "packet/crc32.hpp"
#include "transport/congestion/astraea/policy.hpp"

using namespace loomnet::astraea;

namespace {

void act(const Policy& policy, std::span<const std::uint8_t> bytes) {
  std::vector<float> input(policy.inputs());
  for (std::size_t i = 0; i < input.size(); ++i) {
    std::uint8_t raw[4];
    for (std::size_t k = 0; k < 4; ++k) raw[k] = bytes[(4 * i + k) % bytes.size()];
    std::memcpy(&input[i], raw, sizeof raw);
  }
  float a = 7;
  policy.act(input, {&a, 1});
  if (!(std::fabs(a) <= 1)) std::abort();
  if (!policy.quantised()) return;
  std::int16_t q = 0;
  policy.act_int16(input, {&q, 1});
  if (std::abs(int{q}) > kFullAction) std::abort();
}

// A small policy's file without its CRC.
std::vector<std::uint8_t> a_file() {
  const std::vector<float> ones(8 * 2, 0.5f);
  Policy policy(
      {.features = FeatureSet::rel8, .frames = 1},
      {{.in = 8, .out = 2, .weights = ones, .bias = {0, 0}}, {.in = 2, .out = 1, .weights = {1, -1}, .bias = {0.25f}}});
  policy.quantise();
  std::vector<std::uint8_t> file = policy.serialize();
  file.resize(file.size() - 4);
  return file;
}

void read(std::span<const std::uint8_t> bytes) {
  try {
    const Policy policy = Policy::parse(bytes);
    const std::vector<std::uint8_t> again = policy.serialize();
    if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
    act(policy, bytes);
  } catch (const std::invalid_argument& refused) {
    if (std::strchr(refused.what(), '\n') != nullptr) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read({data, size});
  // With a CRC that fits, so that the fields behind it are reached; and laid over a policy that is one.
  static const std::vector<std::uint8_t> good = a_file();
  std::vector<std::uint8_t> whole(data, data + size), changed = good;
  for (std::size_t i = 0; i < size; ++i) {
    if (i < changed.size())
      changed[i] ^= data[i];
    else
      changed.push_back(data[i]);
  }
  for (std::vector<std::uint8_t>* file : {&whole, &changed}) {
    const std::uint32_t crc = loomnet::crc32(*file);
    for (int i = 0; i < 4; ++i) file->push_back(static_cast<std::uint8_t>(crc >> 8 * i));
    read(*file);
  }
  return 0;
}
