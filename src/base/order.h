// SPDX-License-Identifier: Apache-2.0
// Stable orders of what is compared in a moment or rarely. The sort is compiled once, for numbers, and calls
// for each comparison; a value moves once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice::core {

// Whether what number `a` stands for comes before that of number `b`; refers to a function object.
class Before {
 public:
  template <class F>
  Before(const F& f)
      : object_(&f), call_([](const void* object, uint32_t a, uint32_t b) -> bool {
          return (*static_cast<const F*>(object))(a, b);
        }) {}
  bool operator()(uint32_t a, uint32_t b) const { return call_(object_, a, b); }

 private:
  const void* object_;
  bool (*call_)(const void*, uint32_t, uint32_t);
};

void sort_numbers(std::span<uint32_t> numbers, Before before);
// Numbers from 0 on.
std::vector<uint32_t> sorted_numbers(size_t count, Before before);

// As std::ranges::stable_sort(values, {}, key).
template <class T, class Key>
void sort_by(std::vector<T>& values, const Key& key) {
  std::vector<uint32_t> from =
      sorted_numbers(values.size(), [&](uint32_t a, uint32_t b) { return key(values[a]) < key(values[b]); });
  // Place by place along each cycle.
  for (uint32_t first = 0; first < from.size(); ++first) {
    if (from[first] == first) continue;
    T held = std::move(values[first]);
    uint32_t to = first;
    for (uint32_t next = from[to]; next != first; next = from[to]) {
      values[to] = std::move(values[next]);
      from[to] = to;
      to = next;
    }
    values[to] = std::move(held);
    from[to] = to;
  }
}

}  // namespace sluice::core
