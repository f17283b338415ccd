#include "circuits/messages.hpp"

namespace loomnet::circuits {
namespace {

class Writer {
 public:
  explicit Writer(std::size_t bytes) { out_.reserve(bytes); }
  void put(std::uint64_t value, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; ++at) out_.push_back(static_cast<std::uint8_t>(value >> 8 * at));
  }
  std::vector<std::uint8_t> take() { return std::move(out_); }

 private:
  std::vector<std::uint8_t> out_;
};

// Reads fields one after another. The caller has checked that there are enough bytes.
class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> in) : in_(in) {}
  template <class T>
  void get(T& into, std::size_t bytes = sizeof(T)) {
    std::uint64_t value = 0;
    for (std::size_t at = 0; at < bytes; ++at) value |= std::uint64_t{in_[at_ + at]} << 8 * at;
    at_ += bytes;
    into = static_cast<T>(value);
  }

 private:
  std::span<const std::uint8_t> in_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<DemandReport> DemandReport::parse(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kHeader) return std::nullopt;
  Reader in(bytes);
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint16_t experts = 0;
  DemandReport found;
  in.get(magic);
  in.get(version);
  in.get(found.phase);
  in.get(found.layer);
  in.get(found.iteration);
  in.get(found.micro_batch);
  in.get(found.region);
  in.get(found.source);
  in.get(experts);
  in.get(found.token_bytes);
  if (magic != kMagic || version != kVersion || found.phase > 3 || experts == 0 || experts > kMostExperts ||
      found.source >= experts || bytes.size() != kHeader + std::size_t{4} * experts) {
    return std::nullopt;
  }
  found.tokens.resize(experts);
  for (std::uint32_t& tokens : found.tokens) in.get(tokens);
  return found;
}

std::vector<std::uint8_t> DemandReport::serialize() const {
  Writer out(kHeader + 4 * tokens.size());
  out.put(kMagic, 4);
  out.put(kVersion, 1);
  out.put(phase, 1);
  out.put(layer, 2);
  out.put(iteration, 4);
  out.put(micro_batch, 2);
  out.put(region, 2);
  out.put(source, 2);
  out.put(tokens.size(), 2);
  out.put(token_bytes, 4);
  for (const std::uint32_t each : tokens) out.put(each, 4);
  return out.take();
}

std::optional<CircuitMap> CircuitMap::parse(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kHeader) return std::nullopt;
  Reader in(bytes);
  std::uint32_t magic = 0;
  std::uint8_t version = 0, flags = 0;
  std::uint16_t count = 0, reserved = 0;
  CircuitMap found;
  in.get(magic);
  in.get(version);
  in.get(flags);
  in.get(found.region);
  in.get(found.generation);
  in.get(found.usable_ns);
  in.get(found.layer);
  in.get(found.micro_batch);
  in.get(count);
  in.get(reserved);
  if (magic != kMagic || version != kVersion || flags > 3 || bytes.size() != kHeader + kCircuit * count) {
    return std::nullopt;
  }
  found.predicted = flags & 1;
  found.failure = flags & 2;
  found.circuits.resize(count);
  for (MappedCircuit& circuit : found.circuits) {
    std::uint16_t own = 0;
    in.get(circuit.i);
    in.get(circuit.j);
    in.get(circuit.nic_i);
    in.get(circuit.nic_j);
    in.get(own);
    circuit.unchanged = own & 1;
  }
  return found;
}

std::vector<std::uint8_t> CircuitMap::serialize() const {
  Writer out(kHeader + kCircuit * circuits.size());
  out.put(kMagic, 4);
  out.put(kVersion, 1);
  out.put((predicted ? 1u : 0u) | (failure ? 2u : 0u), 1);
  out.put(region, 2);
  out.put(generation, 8);
  out.put(usable_ns, 8);
  out.put(layer, 2);
  out.put(micro_batch, 2);
  out.put(circuits.size(), 2);
  out.put(0, 2);
  for (const MappedCircuit& circuit : circuits) {
    out.put(circuit.i, 2);
    out.put(circuit.j, 2);
    out.put(circuit.nic_i, 1);
    out.put(circuit.nic_j, 1);
    out.put(circuit.unchanged ? 1 : 0, 2);
  }
  return out.take();
}

}  // namespace loomnet::circuits
