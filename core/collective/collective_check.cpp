// Does what a member sent belong to what runs here? Every chunk is compared before it is used, and
// a disagreement is told in the words of both ranks.
#include <cstring>

#include "collective/collective_run.hpp"

namespace loomnet {
namespace {

std::string describe(const SlotHeader& h) {
  Operation operation;
  operation.collective = h.collective;
  operation.type = h.type;
  operation.reduce = h.reduce;
  operation.root = h.root_or_tag;
  operation.count = h.count;
  std::string text = describe(operation);
  if (h.algorithm != Algorithm::automatic) {
    text += h.algorithm == Algorithm::ring ? " by ring" : " by tree";
  }
  return text;
}

bool same_operation(const SlotHeader& a, const SlotHeader& b) {
  return a.collective == b.collective && a.type == b.type && a.reduce == b.reduce && a.algorithm == b.algorithm &&
         a.root_or_tag == b.root_or_tag && a.count == b.count;
}

}  // namespace

SlotHeader CollectiveRun::header_of(const Step& step, std::uint32_t number, std::uint32_t chunk) const {
  SlotHeader h;
  h.communicator = communicator_.id();
  h.sequence = sequence_;
  h.collective = operation_.collective;
  const bool reduces = h.collective == Collective::all_reduce || h.collective == Collective::reduce ||
                       h.collective == Collective::reduce_scatter;
  const bool rooted = h.collective == Collective::broadcast || h.collective == Collective::reduce ||
                      h.collective == Collective::gather || h.collective == Collective::scatter;
  // Fields that mean nothing for this operation stay at their defaults, so that they cannot differ.
  if (h.collective != Collective::barrier) h.type = operation_.type;
  if (reduces) h.reduce = operation_.reduce;
  h.algorithm = operation_.algorithm;
  if (rooted) h.root_or_tag = operation_.root;
  h.count = agreed_count_;
  h.transfer = step.length;
  h.step = number;
  h.chunk = chunk;
  return h;
}

bool CollectiveRun::front_agrees(GroupRank from, const Chunk& chunk, std::int64_t index) {
  const std::string peer = communicator_.name(from);
  const auto mismatch = [&](const std::string& what) {
    communicator_.raise(OperationStatus::mismatch, what);
    return false;
  };
  const auto garbage = [&](const std::string& what) {
    communicator_.raise(OperationStatus::protocol, peer + " sent " + what, from);
    return false;
  };
  const Step* step = index >= 0 ? &schedule_.steps[static_cast<std::size_t>(index)] : nullptr;
  const std::uint32_t at = step != nullptr ? done_[static_cast<std::size_t>(index)] : 0;

  if (chunk.header == nullptr) {
    // Lengths only: the immediate holds 13 bits of the operation's number, and no more is known.
    const std::uint32_t ahead = (chunk.sequence_low - sequence_) & Immediate::kSequenceMask;
    if (ahead != 0 && ahead <= Immediate::kSequenceMask / 2) return true;  // a later operation's
    if (ahead != 0 || (active_ && step == nullptr)) {
      return mismatch(peer + " sends what no operation here expects");
    }
    if (step == nullptr) return true;
    if (chunk.length != chunk_length(*step, at) || chunk.first != (at == 0) ||
        chunk.last != (at + 1 == chunks_of(*step))) {
      return mismatch(peer + " sends " + std::to_string(chunk.length) + " bytes where " +
                      communicator_.name(communicator_.rank()) + " expects " + std::to_string(chunk_length(*step, at)));
    }
    return true;
  }

  // Copied out once: the peer could still write there.
  std::uint8_t bytes[StagingLayout::kHeaderBytes];
  std::memcpy(bytes, chunk.header, sizeof(bytes));
  const std::optional<SlotHeader> got =
      SlotHeader::parse(std::span<const std::uint8_t, StagingLayout::kHeaderBytes>(bytes));
  if (!got) return garbage("a slot without a valid header");
  if (got->communicator != communicator_.id()) {
    return garbage("a slot of communicator " + std::to_string(got->communicator));
  }
  const auto ahead = static_cast<std::int32_t>(got->sequence - sequence_);
  if (const Operation* sum = sums_ ? sums_->find(got->sequence) : nullptr) {
    return mismatch(peer + " runs " + describe(*got) + " as operation " + std::to_string(got->sequence) + ", " +
                    communicator_.name(communicator_.rank()) + " runs " + describe(*sum));
  }
  if (ahead < 0) {
    return mismatch(peer + " runs " + describe(*got) + " as operation " + std::to_string(got->sequence) +
                    ", which has ended on " + communicator_.name(communicator_.rank()));
  }
  if (ahead > 0 || !active_) return true;  // an operation that has not begun here
  const Step none;
  const SlotHeader want =
      header_of(step != nullptr ? *step : none, lane_at_[receive_lane(from)] - lane_begin_[receive_lane(from)], at);
  if (!same_operation(*got, want)) {
    return mismatch(peer + " runs " + describe(*got) + " as operation " + std::to_string(sequence_) + ", " +
                    communicator_.name(communicator_.rank()) + " runs " + describe(want));
  }
  if (step == nullptr || got->transfer != want.transfer) {
    return mismatch(peer + " sends " + std::to_string(got->transfer) + " bytes in " + describe(want) + " where " +
                    communicator_.name(communicator_.rank()) + " expects " + std::to_string(want.transfer));
  }
  if (*got != want || chunk.length != chunk_length(*step, at)) {
    return garbage("a chunk out of turn in " + describe(want));
  }
  return true;
}

}  // namespace loomnet
