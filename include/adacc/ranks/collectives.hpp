// SPDX-License-Identifier: MIT
/// Collective calls of set-up: the same bytes for all ranks, all ranks' bytes on each, and checks that
/// all ranks agree.
///
/// The functions wait, take memory, and use the tickets of the group from 0 on. All ranks call the same
/// function with the same sizes, while no other messages of the group are under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../core/bytes.hpp"
#include "../core/error.hpp"
#include "group.hpp"

namespace adacc { inline namespace v0_1 {

/// Memory for a message that only reads.
inline Bytes sent_memory(ConstBytes memory) {
  return {const_cast<std::byte*>(memory.data()), memory.shape()};
}

namespace detail {

/// No transport takes messages of any size, and some transports hold a copy.
inline constexpr std::size_t longest_message = 16 * MiB;

/// Calls body(piece) for pieces of `memory`, in order, until one is an error.
template <class Body>
Error in_pieces(Bytes memory, const Body& body) {
  for (std::size_t at = 0; at < memory.size(); at += longest_message) {
    const std::size_t left = memory.size() - at;
    const Shape shape(left < longest_message ? left : longest_message);
    if (const Error why = body(Bytes(memory.data() + at, shape))) return why;
  }
  return {};
}

}  // namespace detail

/// Copies rank `root`'s bytes to all ranks. Ranks that have the bytes send them on: log2(size) rounds.
inline Error broadcast(GroupRef group, Bytes memory, int root = 0) {
  const int size = group.size(), me = (group.rank() - root + size) % size;  // root counts as 0
  if (const Error why = group.prepare(1)) return why;
  return detail::in_pieces(memory, [&](Bytes piece) {
    for (int had = 1; had < size; had *= 2) {
      if (me < had && me + had < size) group.send(0, (me + had + root) % size, 0, piece);
      else if (me >= had && me < 2 * had) group.receive(0, (me - had + root) % size, 0, piece);
      else continue;
      if (const Error why = group.wait(0)) return why;
    }
    return Error();
  });
}

/// `from`, on rank `source`, is copied to `to`, on rank `target`; nobody else does anything.
inline Error transfer(GroupRef group, Bytes from, int source, Bytes to, int target) {
  const int me = group.rank();
  if (me != source && me != target) return {};
  if (source == target) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return {};
  }
  if (const Error why = group.prepare(1)) return why;
  return detail::in_pieces(me == source ? from : to, [&](Bytes piece) {
    if (me == source) group.send(0, target, 0, piece);
    else group.receive(0, source, 0, piece);
    return group.wait(0);
  });
}

/// Gathers all ranks' `contribution`, of one size on all ranks, in the order of ranks. `all` has
/// group.size() times the size.
inline Error all_gather(GroupRef group, ConstBytes contribution, Bytes all) {
  const int size = group.size(), me = group.rank();
  const std::size_t bytes = contribution.size();
  if (all.size() < bytes * static_cast<std::size_t>(size))
    return Error::misuse("all_gather() of ", bytes, " bytes from ", size, " ranks got room for ",
                         all.size());
  if (const Error why = group.prepare(2 * size)) return why;
  if (bytes == 0) return {};
  std::memmove(all.data() + static_cast<std::size_t>(me) * bytes, contribution.data(), bytes);
  for (int i = 1; i < size; ++i) {  // everybody begins with another peer
    const int peer = (me + i) % size;
    group.send(2 * peer, peer, 0, sent_memory(contribution));
    group.receive(2 * peer + 1, peer, 0,
                  {all.data() + static_cast<std::size_t>(peer) * bytes, Shape(bytes)});
  }
  Error first;
  for (int i = 1; i < size; ++i)
    for (int side = 0; side < 2; ++side)
      if (const Error why = group.wait(2 * ((me + i) % size) + side); why && !first) first = why;
  return first;
}

/// Gathers one number of each rank.
inline Error all_gather(GroupRef group, std::uint64_t contribution,
                        std::vector<std::uint64_t>& all) {
  all.assign(static_cast<std::size_t>(group.size()), contribution);
  const std::size_t bytes = sizeof contribution;
  return all_gather(group, {reinterpret_cast<const std::byte*>(&contribution), Shape(bytes)},
                    {reinterpret_cast<std::byte*>(all.data()), Shape(all.size() * bytes)});
}

/// Copies rank `root`'s text to all ranks.
inline Error broadcast(GroupRef group, std::string& text, int root = 0) {
  std::uint64_t size = text.size();
  if (const Error why =
          broadcast(group, {reinterpret_cast<std::byte*>(&size), Shape(sizeof size)}, root))
    return why;
  text.resize(static_cast<std::size_t>(size));
  return broadcast(group, {reinterpret_cast<std::byte*>(text.data()), Shape(text.size())}, root);
}

/// Gathers a text of each rank, in the order of ranks.
inline Error all_gather(GroupRef group, const std::string& contribution,
                        std::vector<std::string>& all) {
  std::vector<std::uint64_t> sizes;
  if (const Error why = all_gather(group, std::uint64_t{contribution.size()}, sizes)) return why;
  std::uint64_t longest = 0;
  for (const std::uint64_t size : sizes) longest = size > longest ? size : longest;
  std::string padded = contribution;
  padded.resize(static_cast<std::size_t>(longest));
  std::string texts(padded.size() * sizes.size(), '\0');
  if (const Error why = all_gather(
          group, {reinterpret_cast<const std::byte*>(padded.data()), Shape(padded.size())},
          {reinterpret_cast<std::byte*>(texts.data()), Shape(texts.size())}))
    return why;
  all.clear();
  for (std::size_t r = 0; r < sizes.size(); ++r)
    all.push_back(texts.substr(r * padded.size(), static_cast<std::size_t>(sizes[r])));
  return {};
}

/// An error on one rank becomes an error on all: ranks without an error get the first other error, with its
/// rank. Called at the end of every part of set-up that can fail, so no rank goes on alone.
inline Error share_error(GroupRef group, const Error& failure) {
  std::vector<std::string> all;
  if (const Error why = all_gather(group, std::string(failure.text()), all))
    return failure ? failure : why;
  if (failure) return failure;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) return Error::say("rank ", r, ": ", all[r].c_str());
  return {};
}

/// Checks that all ranks agree, field by field.
class Agreement {
 public:
  void add(const std::string& field, const std::string& value) {
    names_.push_back(field);
    values_.push_back(value);
  }
  void add(const std::string& field, std::uint64_t value) { add(field, std::to_string(value)); }
  void add(const std::string& field, const char* value) { add(field, std::string(value)); }

  /// No error on any rank if all ranks added the same; else an error on all, naming the first field
  /// that differs and the ranks whose value is not rank 0's.
  Error examine(GroupRef group) const {
    std::string named;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      named += names_[i];
      named += '\0';
      named += values_[i];
      named += '\0';
    }
    std::vector<std::string> all;
    if (const Error why = all_gather(group, named, all)) return why;
    // The first place at which a rank is not like rank 0 is in the first field that differs.
    std::size_t first = named.size() + all[0].size();
    for (const std::string& other : all) {
      std::size_t i = 0;
      while (i < other.size() && i < all[0].size() && other[i] == all[0][i]) ++i;
      if (other != all[0] && i < first) first = i;
    }
    if (first == named.size() + all[0].size()) return {};
    const auto fields = [&](const std::string& text) {
      std::vector<std::string> parts(1);
      for (const char c : text)
        if (c == '\0') parts.emplace_back();
        else parts.back() += c;
      return parts;
    };
    const std::vector<std::string> base = fields(all[0]);
    std::size_t field = 0;
    for (std::size_t i = 0; i < first && i < all[0].size(); ++i)
      if (all[0][i] == '\0') ++field;
    field = field / 2 * 2;  // names stand at even places
    std::string others, theirs;
    for (std::size_t r = 1; r < all.size(); ++r) {
      const std::vector<std::string> parts = fields(all[r]);
      const std::string value = field + 1 < parts.size() ? parts[field + 1] : "nothing";
      if (value == base[field + 1]) continue;
      if (theirs.empty()) theirs = value;
      if (others.size() < 60) others += (others.empty() ? "" : ", ") + std::to_string(r);
      else if (others.back() != '.') others += " ...";
    }
    return Error::say("the ranks disagree on the ", base[field].c_str(), ": rank 0 has ",
                      shown(base[field + 1]).c_str(), ", rank ", others.c_str(), " ",
                      shown(theirs).c_str());
  }

 private:
  static std::string shown(std::string text) {
    for (char& c : text)
      if (c == '\n') c = ';';
    return text.size() > 90 ? text.substr(0, 90) + "..." : text;
  }

  std::vector<std::string> names_, values_;
};

}}  // namespace adacc::v0_1
