#include "moe/region_work.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::moe {
namespace {

constexpr std::uint16_t kAllLayers = 0xffff;  // in the key of a demand

// The order of a stage's work: first as many forward passes as there are stages behind it, then a backward pass after
// each forward pass.
std::vector<std::pair<std::uint32_t, bool>> one_forward_one_backward(std::uint32_t micro_batches, std::uint32_t stages,
                                                                     std::uint32_t stage) {
  std::vector<std::pair<std::uint32_t, bool>> order;
  std::uint32_t forward = 0, backward = 0;
  while (forward < std::min(stages - 1 - stage, micro_batches)) order.emplace_back(forward++, false);
  while (backward < micro_batches) {
    if (forward < micro_batches) order.emplace_back(forward++, false);
    order.emplace_back(backward++, true);
  }
  return order;
}

Picoseconds time_at(double bytes, BitsPerSecond rate) {
  if (rate.count == 0) return {};
  return {std::llround(bytes * 8e12 / static_cast<double>(rate.count))};
}

}  // namespace

RegionWork::RegionWork(Network& network, Transfers& transfers, const Shape& shape, const GateCounts& gates,
                       std::uint32_t region, const WorkOptions& options, const ExchangeOptions& exchange,
                       Pipeline& pipeline)
    : network_(network),
      shape_(shape),
      gates_(gates),
      region_(region),
      layers_(shape.layers[shape.stage(region)]),
      first_layer_(0),
      options_(options),
      pipeline_(pipeline),
      id_(network.events().add(*this)),
      exchange_(network, transfers, exchange, *this),
      inputs_(shape.micro_batches),
      loads_(layers_) {
  for (std::uint32_t stage = 0; stage < shape.stage(region); ++stage) first_layer_ += shape.layers[stage];
  for (const auto& [micro_batch, backward] :
       one_forward_one_backward(shape.micro_batches, shape.stages, shape.stage(region))) {
    order_.push_back({micro_batch, backward});
  }
  if (options.first_dispatch == FirstDispatch::copilot) {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      copilots_.push_back(std::make_unique<circuits::Copilot>(shape.experts, options.copilot));
    }
  }
}

void RegionWork::use_circuits(NodeId panel, const circuits::RegionOptions& options, std::vector<NicPort> nics) {
  circuits::RegionOptions mine = options;
  if (options_.repatch == Repatch::worthwhile) mine.worthwhile = {exchange_.options().split, exchange_.options().rates};
  driver_ = std::make_unique<RegionDriver>(network_, exchange_, panel, mine, std::move(nics),
                                           static_cast<RegionDriver::Listener&>(*this));
}

void RegionWork::use_rotor(NodeId panel, const RotorOptions& options, std::vector<NicPort> nics) {
  rotor_ = std::make_unique<Rotor>(network_, exchange_, panel, options, std::move(nics));
}

circuits::Tokens RegionWork::tokens(std::uint32_t layer) const {
  return gates_.tokens(iteration_, task().micro_batch, region_, layer);
}

circuits::DemandKey RegionWork::key(bool backward, std::uint32_t layer) const {
  return {iteration_, static_cast<std::uint16_t>(first_layer_ + layer), static_cast<std::uint16_t>(task().micro_batch),
          backward};
}

void RegionWork::begin(std::uint32_t iteration, Picoseconds now) {
  const bool patches =
      driver_ && iteration > 0 &&
      (options_.repatch == Repatch::iteration || (options_.repatch == Repatch::once && iteration == 1));
  iteration_ = iteration;
  task_ = 0;
  times_ = {};
  exposed_ = {};
  std::ranges::fill(inputs_, shape_.stage(region_) == 0 ? 1 : 0);
  const std::vector<std::uint64_t> last = std::exchange(demanded_, {});
  for (auto& each : loads_) each.assign(shape_.experts, 0);
  if (patches && !last.empty()) driver_->demand({iteration, kAllLayers, 0, false}, last, now);
  next_task(now);
}

void RegionWork::input(std::uint32_t micro_batch, bool backward, Picoseconds exposed, Picoseconds now) {
  inputs_.at(micro_batch) |= backward ? 2 : 1;
  if (step_ != Step::input || task().micro_batch != micro_batch || task().backward != backward) return;
  exposed_ = exposed;  // the region was waiting for this input, so the sender's chain of work is the longer one
  start_task(now);
}

void RegionWork::next_task(Picoseconds now) {
  if (task_ == order_.size()) {
    step_ = Step::idle;
    learn();
    return pipeline_.all_done(region_, now);
  }
  layer_ = task().backward ? layers_ - 1 : 0;
  step_ = Step::input;
  since_ = now;
  // The demand is known since the forward pass, so circuits are asked for before the gradients arrive.
  if (task().backward) ask(true, layer_, now);
  start_task(now);
}

void RegionWork::start_task(Picoseconds now) {
  if (!(inputs_[task().micro_batch] & (task().backward ? 2 : 1))) return;
  if (task().backward) return enter_exchange(Step::combine, now);
  compute(Step::attention, now);
}

void RegionWork::compute(Step step, Picoseconds now) {
  step_ = step;
  since_ = now;
  if (step == Step::attention) {
    if (!task().backward) {
      ask_ahead(layer_, now);
    } else if (layer_ > 0) {
      ask(true, layer_ - 1, now);
    }
  } else if (!task().backward && options_.first_dispatch != FirstDispatch::block) {
    ask(false, layer_, now);
  }
  const Picoseconds forward = step == Step::attention ? options_.attention : options_.experts;
  network_.events().schedule(now + (task().backward ? forward * 2 : forward), id_, kComputed);
}

void RegionWork::on_event(std::uint64_t what, Picoseconds now) {
  if (what == kComputed) return computed(now);
  if (what == kScattered) return end_exchange(now);
  exchange_.begin(flows_, now);
  if (rotor_ && exchange_.open()) rotor_->begin(now);
}

void RegionWork::computed(Picoseconds now) {
  const bool backward = task().backward;
  times_.computing += now - since_;
  note(step_ == Step::attention ? Span::Kind::attention : Span::Kind::experts, since_, now);
  if (step_ == Step::experts) return enter_exchange(backward ? Step::dispatch : Step::combine, now);
  if (!backward) return enter_exchange(Step::dispatch, now);
  if (layer_ > 0) {
    --layer_;
    return enter_exchange(Step::combine, now);
  }
  const std::uint32_t micro_batch = task().micro_batch;
  ++task_;
  pipeline_.backward_done(region_, micro_batch, now);
  next_task(now);
}

// Asks for the circuits of a layer.
void RegionWork::ask(bool backward, std::uint32_t layer, Picoseconds now) {
  if (!asks_by_layer()) return;
  const circuits::Tokens gate = tokens(layer);
  driver_->demand(
      key(backward, layer),
      circuits::pair_demand(circuits::server_tokens(gate, shape_.placement()), shape_.servers(), options_.duplex), now,
      false, use(gate, backward, layer, false));
}

// What the circuits of a layer are for, as far as the region knows it now.
circuits::Use RegionWork::use(const circuits::Tokens& tokens, bool backward, std::uint32_t layer, bool guessed) const {
  circuits::Use found;
  if (options_.repatch != Repatch::worthwhile) return found;
  for (const std::uint64_t each : circuits::server_tokens(tokens, shape_.placement())) {
    const auto whole = static_cast<unsigned __int128>(options_.per_rank) * each;
    found.bytes.push_back(static_cast<std::uint64_t>(whole / tokens.row_sum));
  }
  const bool last = layer + 1 == layers_;
  const auto turns = [&](std::size_t task) {  // its backward pass follows its forward pass at once
    return task + 1 < order_.size() && !order_[task].backward && order_[task + 1].backward &&
           order_[task].micro_batch == order_[task + 1].micro_batch;
  };
  if (backward) {  // asked for while the attention of the layer behind it computes
    if (!last) found.hidden = options_.attention * 2;
    if (layer > 0) found.next_hidden = options_.attention * 2;
    if (last && task_ > 0 && turns(task_ - 1)) found.exchanges = 0;  // the forward pass has asked for them too
  } else if (
      guessed) {  // for the dispatch, while attention computes; while experts do, those of the gate's counts follow
    found.exchanges = 1;
    found.hidden = options_.attention;
    found.next_hidden = options_.experts;
  } else if (options_.first_dispatch != FirstDispatch::block) {  // for the combine, while experts compute
    found.exchanges = 1;
    found.hidden = options_.experts;
    if (!last) found.next_hidden = std::min(options_.attention, options_.experts);
  }
  if (!backward && !guessed && last && turns(task_)) {
    found.exchanges += 2;
    if (layer > 0) found.next_hidden = options_.attention * 2;
  }
  return found;
}

// Asks for circuits of a layer whose gate has not routed its tokens yet.
void RegionWork::ask_ahead(std::uint32_t layer, Picoseconds now) {
  if (!asks_by_layer()) return;
  circuits::DemandKey ahead = key(false, layer);
  ahead.guessed = true;
  const std::size_t servers = shape_.servers();
  if (options_.first_dispatch == FirstDispatch::random) {
    return driver_->demand(ahead, std::vector<std::uint64_t>(servers * servers), now, true);
  }
  if (options_.first_dispatch != FirstDispatch::copilot || layer == 0 || copilots_[layer]->records() < 2) return;
  const circuits::Tokens before = tokens(layer - 1);
  std::vector<double> loads(before.experts);
  for (std::size_t s = 0; s < before.experts; ++s) {
    for (std::size_t d = 0; d < before.experts; ++d) loads[d] += static_cast<double>(before.at(s, d));
  }
  const std::vector<double> shares = copilots_[layer]->predict(loads);
  circuits::Tokens guess{before.experts, std::vector<std::uint64_t>(before.counts.size()), before.row_sum};
  for (std::size_t s = 0; s < guess.experts; ++s) {
    for (std::size_t d = 0; d < guess.experts; ++d) {
      guess.counts[s * guess.experts + d] =
          static_cast<std::uint64_t>(std::llround(shares[d] * static_cast<double>(guess.row_sum)));
    }
  }
  driver_->demand(ahead,
                  circuits::pair_demand(circuits::server_tokens(guess, shape_.placement()), servers, options_.duplex),
                  now, false, use(guess, false, layer, true));
}

void RegionWork::enter_exchange(Step step, Picoseconds now) {
  step_ = step;
  since_ = now;
  const bool backward = task().backward;
  if (step == Step::dispatch && !backward) {
    if (options_.first_dispatch == FirstDispatch::block) ask(false, layer_, now);
    const circuits::Tokens gate = tokens(layer_);
    for (std::size_t s = 0; s < gate.experts; ++s) {
      for (std::size_t d = 0; d < gate.experts; ++d) loads_[layer_][d] += static_cast<double>(gate.at(s, d));
    }
    if (driver_ && (options_.repatch == Repatch::iteration || options_.repatch == Repatch::once)) {
      const auto demand =
          circuits::pair_demand(circuits::server_tokens(gate, shape_.placement()), shape_.servers(), options_.duplex);
      demanded_.resize(demand.size());
      for (std::size_t p = 0; p < demand.size(); ++p) demanded_[p] += demand[p];
    }
  }
  // A combine sends the tokens of the dispatch back. The gradient of a dispatch moves as a combine does, and that of a
  // combine as a dispatch.
  flows_ = gpu_flows(tokens(layer_), shape_.placement(), options_.per_rank, (step == Step::combine) != backward);
  waiting_ = true;
  try_exchange(now);
}

bool RegionWork::may_exchange() const {
  if (!driver_ || options_.electrical_first) return true;
  if (!asks_by_layer()) return driver_->live();
  const bool guessing = step_ == Step::dispatch && !task().backward && options_.first_dispatch != FirstDispatch::block;
  return guessing ? driver_->live() : driver_->ready(key(task().backward, layer_));
}

void RegionWork::try_exchange(Picoseconds now) {
  if (!waiting_ || !may_exchange()) return;
  waiting_ = false;
  times_.waiting += now - since_;
  exposed_ += now - since_;
  if (now > since_) note(Span::Kind::blocked, since_, now);
  gathering_ = now;
  std::vector<std::uint64_t> out(shape_.servers()), in(shape_.servers()), inside(shape_.servers());
  for (const GpuFlow& flow : flows_) {
    if (flow.source == flow.destination) {
      inside[flow.source] += flow.bytes;
    } else {
      out[flow.source] += flow.bytes;
      in[flow.destination] += flow.bytes;
    }
  }
  // Each GPU of a server moves an equal part of the bytes, and one part in `gpus` is at its GPU already.
  const double gpus = shape_.gpus;
  const auto local = [&](const std::vector<std::uint64_t>& bytes, double part) {
    return time_at(static_cast<double>(std::ranges::max(bytes)) * part / gpus, options_.local);
  };
  inside_ = local(inside, 1);
  scatter_ = options_.direct ? Picoseconds{} : local(in, 1 - 1 / gpus);
  const Picoseconds gather = options_.direct ? Picoseconds{} : local(out, 1 - 1 / gpus);
  network_.events().schedule(now + gather, id_, kGathered);
}

void RegionWork::exchanged(Picoseconds now) {
  if (rotor_) rotor_->end();
  network_.events().schedule(std::max(now + scatter_, gathering_ + inside_), id_, kScattered);
}

void RegionWork::end_exchange(Picoseconds now) {
  const bool backward = task().backward, dispatch = step_ == Step::dispatch;
  times_.exchanging += now - since_;
  note(dispatch ? Span::Kind::dispatch : Span::Kind::combine, gathering_, now);
  if (dispatch != backward) return compute(Step::experts, now);
  if (backward) return compute(Step::attention, now);
  if (++layer_ < layers_) return compute(Step::attention, now);
  const std::uint32_t micro_batch = task().micro_batch;
  ++task_;
  if (shape_.stage(region_) + 1 == shape_.stages) inputs_[micro_batch] |= 2;
  pipeline_.forward_done(region_, micro_batch, now);
  next_task(now);
}

void RegionWork::exchange_failed(std::uint32_t source, Status status, Picoseconds now) {
  pipeline_.region_failed(region_, source, status, now);
}

void RegionWork::drained(Picoseconds now) {
  if (driver_) driver_->drained(now);
  if (rotor_) rotor_->drained(now);
}

void RegionWork::circuits_changed(Picoseconds now) { try_exchange(now); }

// Gives the iteration's expert loads to Copilot.
void RegionWork::learn() {
  for (std::uint32_t layer = 1; layer < copilots_.size(); ++layer) {
    copilots_[layer]->record(loads_[layer - 1], loads_[layer]);
    copilots_[layer]->fit();
  }
}

void RegionWork::note(Span::Kind kind, Picoseconds begin, Picoseconds end) {
  if (spans_.size() >= most_spans_) return;
  spans_.push_back({kind, task().backward, static_cast<std::uint16_t>(first_layer_ + layer_),
                    static_cast<std::uint16_t>(task().micro_batch), iteration_, begin, end});
}

}  // namespace loomnet::moe
