// SPDX-License-Identifier: MIT
/// The transfers of a planned step, begun and waited for at the moments named by the plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "sent_storages.hpp"
#include "step_recorder.hpp"
#include "step_transfers.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// The transfers of a plan, by moment.
class TravelPlan {
 public:
  TravelPlan() = default;
  TravelPlan(const StepMemory& memory, const StepChoice& choice) : numbers_(choice.travel.size()) {
    const std::vector<StepMoment> moments = StepTransfers(memory).moments_of(choice);
    // The first moment of the event; there is one, as the plan chose among moments.
    const auto at = [&](int event) -> Moment& {
      const auto found = std::find_if(moments.begin(), moments.end(),
                                      [&](const StepMoment& m) { return m.event == event; });
      return numbers_[index(found->number)].when[found->reads ? 1 : 0];
    };
    for (int id = 0; id < static_cast<int>(choice.travel.size()); ++id) {
      const StepTravel& travel = choice.travel[index(id)];
      if (!travel.sent) continue;
      ++count_;
      numbers_[index(id)].sent = true;
      numbers_[index(id)].at_once = travel.written == memory.released(id, choice);
      if (!numbers_[index(id)].at_once) at(travel.written).leave.push_back(id);
      if (travel.fetched != memory.first_use(id, choice))
        at(travel.fetched).come_back.push_back(id);
    }
  }

  bool sends(int number) const { return numbers_[index(number)].sent; }
  /// The number of sent storages.
  int count() const { return count_; }

 private:
  friend class StepTravels;
  struct Moment {
    std::vector<int> leave, come_back;
  };
  struct Number {
    bool sent = false, at_once = false;
    Moment when[2];  // autograd is the only owner; backward reads
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  std::vector<Number> numbers_;
  int count_ = 0;
};

/// The sent storages of the step under way. The recorder is told the storages whose memory goes and comes back.
class StepTravels {
 public:
  explicit StepTravels(StepRecorder& recorder) : recorder_(recorder) {}

  void clear() { sent_.clear(); }

  /// Autograd alone holds storage `number`, or, if `reads`, backward asks for the storage.
  void at(const TravelPlan& plan, int number, bool reads) {
    const TravelPlan::Moment& moment = plan.numbers_[TravelPlan::index(number)].when[reads ? 1 : 0];
    for (const int id : moment.leave) leave(id);
    for (const int id : moment.come_back)
      if (const auto sent = of(id); sent != nullptr && sent->come_back()) recorder_.comes_back(id);
  }
  /// Without a plan, the step waits at once.
  std::shared_ptr<SentStorage> send(const TravelPlan* plan, SentStorages& store, int number,
                                    const at::Storage& memory,
                                    const std::optional<c10::Stream>& stream) {
    std::shared_ptr<SentStorage> sent = store.send(memory, stream);
    if (sent == nullptr) return nullptr;
    if (sent_.size() <= TravelPlan::index(number)) sent_.resize(TravelPlan::index(number) + 1);
    sent_[TravelPlan::index(number)] = sent;
    if (plan == nullptr || plan->numbers_[TravelPlan::index(number)].at_once) leave(number);
    return sent;
  }
  /// The step goes on without a plan: waits for the writes under way.
  void leave_all() {
    for (std::size_t id = 0; id < sent_.size(); ++id) leave(static_cast<int>(id));
  }

 private:
  void leave(int id) {
    if (const auto sent = of(id); sent != nullptr && sent->leave()) recorder_.leaves(id);
  }
  std::shared_ptr<SentStorage> of(int id) const {
    return TravelPlan::index(id) < sent_.size() ? sent_[TravelPlan::index(id)].lock() : nullptr;
  }

  StepRecorder& recorder_;
  std::vector<std::weak_ptr<SentStorage>> sent_;  // by number
};

}}}}  // namespace adacc::v0_1::torch::detail
