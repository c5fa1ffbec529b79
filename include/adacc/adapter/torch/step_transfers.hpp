// SPDX-License-Identifier: MIT
/// The times of a step's transfers: each write and each read gets as much time as the bytes of the budget allow.
///
/// A planned step calls hooks at two kinds of moments: autograd alone holds a storage, or backward asks for one.
/// Transfers begin and are waited for at such moments, named by the plan. So the bytes in use follow from the order
/// of the step alone, and a slow store makes the step longer, never larger. A write is waited for when the link
/// should have finished, or sooner if the bytes are needed. A read begins early enough to be in time, or later if
/// there is no room.
///
/// The duration is simulated in two lanes as in cost/link.hpp: computation takes the recorded seconds, the link does
/// one transfer after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "../../core/bytes.hpp"
#include "../../cost/link.hpp"
#include "step_memory.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A moment at which hooks are called in a planned step.
struct StepMoment {
  int event = 0;
  bool reads = false;  ///< backward asks for storage `number`; otherwise autograd is the only owner
  int number = -1;
};

/// The course of a step under a choice.
struct StepCourse {
  double seconds = 0;  ///< added to the recorded step's; among them:
  double stall_seconds = 0;
  std::size_t sent_bytes = 0;  ///< to the store and back
};

class StepTransfers {
 public:
  /// Without a link, nothing may be sent. `memory` must outlive this object.
  explicit StepTransfers(const StepMemory& memory, const LinkCost& link = {})
      : memory_(memory), record_(memory.record()), link_(link) {}

  const LinkCost& link() const { return link_; }
  /// Bytes of storage `id` in the store.
  std::size_t store_bytes(int id, const StepChoice& choice) const {
    return div_up(memory_.waiting_bytes(id, choice), transfer_alignment) * transfer_alignment;
  }

  /// Lets the step wait for each transfer at once: the least bytes. Storages that may not be sent under `choice`
  /// stay.
  void at_once(StepChoice& choice) const {
    for (int id = 0; id < storages(); ++id) {
      StepTravel& travel = choice.travel[index(id)];
      if (!travel.sent) continue;
      travel = memory_.may_be_sent(id, choice)
                   ? StepTravel{true, memory_.released(id, choice), memory_.first_use(id, choice)}
                   : StepTravel{};
    }
  }

  /// Gives transfers time, as far as the step stays within `budget` bytes.
  void spread(StepChoice& choice, std::size_t budget) const {
    at_once(choice);
    const std::vector<StepMoment> moments = moments_of(choice);
    const std::vector<double> time = times(choice);
    std::vector<std::ptrdiff_t> room = memory_.peaks(choice);
    for (std::ptrdiff_t& bytes : room) bytes = static_cast<std::ptrdiff_t>(budget) - bytes;
    spread_writes(choice, moments, time, room);
    spread_reads(choice, moments, time, room);
    for (StepTravel& travel : choice.travel)
      if (travel.sent && travel.written >= travel.fetched) travel = {};  // the storage never leaves
  }

  StepCourse course(const StepChoice& choice) const {
    StepCourse course;
    const std::vector<double> added = added_seconds(choice);
    std::vector<Action> actions;
    for (int id = 0; id < storages(); ++id) {
      const StepTravel& travel = choice.travel[index(id)];
      if (!travel.sent) continue;
      const int released = memory_.released(id, choice);
      actions.push_back({released, Action::write, id});
      actions.push_back(
          {travel.written, travel.written == released ? Action::wait_at_once : Action::wait, id});
      actions.push_back({travel.fetched, Action::read, id});
      actions.push_back({memory_.first_use(id, choice), Action::wait_read, id});
      course.sent_bytes += store_bytes(id, choice);
    }
    std::sort(actions.begin(), actions.end(), [](const Action& a, const Action& b) {
      return a.event != b.event ? a.event < b.event : a.what < b.what;
    });
    std::vector<double> end(record_.storages.size(), 0);
    Lanes lanes;
    std::size_t next = 0;
    for (std::size_t e = 0; e < record_.events.size(); ++e) {
      lanes.now += e == 0 ? 0 : record_.events[e].seconds - record_.events[e - 1].seconds;
      for (; next < actions.size() && actions[next].event == static_cast<int>(e); ++next) {
        const Action& action = actions[next];
        const std::size_t bytes = store_bytes(action.id, choice);
        double& arrival = end[index(action.id)];
        if (action.what == Action::write || action.what == Action::read) {
          lanes.now += link_.begin_seconds(bytes);
          arrival = lanes.transfer(action.what == Action::write ? link_.write_seconds(bytes)
                                                                : link_.read_seconds(bytes));
        } else if (arrival > lanes.now) {
          course.stall_seconds += arrival - lanes.now;
          lanes.now = arrival;
        }
      }
      lanes.now += added[e];
    }
    const double plain = record_.events.empty() ? 0 : record_.events.back().seconds;
    course.seconds = lanes.now - plain;
    return course;
  }

  /// All moments of a step under `choice`, in order.
  std::vector<StepMoment> moments_of(const StepChoice& choice) const {
    std::vector<StepMoment> moments;
    for (int id = 0; id < storages(); ++id) {
      const StepStorage& storage = record_.storages[index(id)];
      if (memory_.gone(id, choice)) continue;
      if (storage.saved && storage.released >= 0)
        moments.push_back({memory_.released(id, choice), false, id});
      const int first = memory_.first_use(id, choice);
      if (first >= 0) moments.push_back({first, true, id});
    }
    std::sort(moments.begin(), moments.end(), [](const StepMoment& a, const StepMoment& b) {
      return a.event != b.event ? a.event < b.event : a.number < b.number;
    });
    return moments;
  }

 private:
  /// Actions at one event, in this order.
  struct Action {
    enum What : unsigned char { wait, write, wait_at_once, read, wait_read };
    int event;
    What what;
    int id;
  };

  /// A link is hardly ever as fast as measured.
  static constexpr double margin = 1.5;

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  int storages() const { return static_cast<int>(record_.storages.size()); }

  /// The sent storages, in the order of `event`(id).
  template <class Event>
  std::vector<int> sent(const StepChoice& choice, const Event& event) const {
    std::vector<int> all;
    for (int id = 0; id < storages(); ++id)
      if (choice.travel[index(id)].sent) all.push_back(id);
    std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return event(a) < event(b); });
    return all;
  }

  void spread_writes(StepChoice& choice, const std::vector<StepMoment>& moments,
                     const std::vector<double>& time, std::vector<std::ptrdiff_t>& room) const {
    double free = 0;  // when the link is free
    for (const int id : sent(choice, [&](int i) { return memory_.released(i, choice); })) {
      StepTravel& travel = choice.travel[index(id)];
      const auto bytes = static_cast<std::ptrdiff_t>(memory_.waiting_bytes(id, choice));
      const double now = time[index(travel.written)];
      free = std::max(free, now) + margin * link_.write_seconds(store_bytes(id, choice));
      int held = travel.written;  // up to the end of this interval there is room
      for (const StepMoment& moment : moments) {
        if (moment.event <= held) continue;
        if (moment.event >= travel.fetched || time[index(held)] >= free) break;
        if (least(room, held + 1, moment.event) < bytes) break;
        take(room, held + 1, moment.event, bytes);
        held = moment.event;
      }
      travel.written = held;
      free = std::max(std::min(free, time[index(held)]), now);
    }
  }

  void spread_reads(StepChoice& choice, const std::vector<StepMoment>& moments,
                    const std::vector<double>& time, std::vector<std::ptrdiff_t>& room) const {
    const std::vector<int> order =
        sent(choice, [&](int i) { return memory_.first_use(i, choice); });
    std::vector<double> ideal(order.size());
    double next = 1e300;  // when the link has to be free for the read behind
    for (std::size_t i = order.size(); i-- > 0;) {
      const int id = order[i];
      const double wanted = std::min(next, time[index(choice.travel[index(id)].fetched)]);
      next = ideal[i] = wanted - margin * link_.read_seconds(store_bytes(id, choice));
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      StepTravel& travel = choice.travel[index(order[i])];
      const auto bytes = static_cast<std::ptrdiff_t>(memory_.waiting_bytes(order[i], choice));
      for (std::size_t m = moments.size(); m-- > 0;) {
        const int earlier = moments[m].event;
        if (earlier >= travel.fetched) continue;
        if (earlier <= travel.written || time[index(travel.fetched)] <= ideal[i]) break;
        if (least(room, earlier + 1, travel.fetched) < bytes) break;
        take(room, earlier + 1, travel.fetched, bytes);
        travel.fetched = earlier;
      }
    }
  }

  static std::ptrdiff_t least(const std::vector<std::ptrdiff_t>& room, int first, int last) {
    return *std::min_element(room.begin() + first, room.begin() + last + 1);
  }
  static void take(std::vector<std::ptrdiff_t>& room, int first, int last, std::ptrdiff_t bytes) {
    for (int e = first; e <= last; ++e) room[index(e)] -= bytes;
  }

  /// Seconds added to computation by the plan, by the event before them.
  std::vector<double> added_seconds(const StepChoice& choice) const {
    std::vector<double> added(record_.events.size(), 0);
    const auto add = [&](int event, double seconds) {
      if (!added.empty()) added[event < 0 ? added.size() - 1 : index(event)] += seconds;
    };
    for (int id = 0; id < storages(); ++id) {
      if (!memory_.costs(id, choice)) continue;
      const StepForm& form = *memory_.form_of(id, choice);
      add(memory_.released(id, choice), form.encode);
      add(memory_.first_use(id, choice),
          memory_.decode_seconds(id, choice) * record_.storages[index(id)].decodings());
    }
    for (int b = 0; b < static_cast<int>(record_.blocks.size()); ++b)
      if (choice.again[index(b)] != 0) add(memory_.runs_again(b), record_.blocks[index(b)].seconds);
    return added;
  }

  /// The time of each event, without waits.
  std::vector<double> times(const StepChoice& choice) const {
    std::vector<double> all = added_seconds(choice);
    double sum = 0;
    for (std::size_t e = 0; e < all.size(); ++e) {
      const double value = all[e];
      all[e] = record_.events[e].seconds + sum;
      sum += value;
    }
    return all;
  }

  const StepMemory& memory_;
  const StepRecord& record_;
  const LinkCost link_;
};

}}}  // namespace adacc::v0_1::torch
