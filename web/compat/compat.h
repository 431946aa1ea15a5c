// SPDX-License-Identifier: Apache-2.0
// What the standard library of emscripten 3.1.6 (libc++ 14) lacks of C++20, as far as the planner uses it.
// Included before every source of the page's program; the other files of this folder stand for headers that
// are not there. scripts/check_page holds the sources to what is here.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

namespace std {

#ifndef __cpp_lib_bit_cast
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
#endif

// As the standard has it, but for where the number ends: what only strtod reads is none.
inline from_chars_result from_chars(const char* first, const char* last, double& value) {
  const string text(first, last);
  if (text.empty() || text.find_first_not_of("-0123456789.") == 0 || text.find_first_of("xX") != string::npos)
    return {first, errc::invalid_argument};
  char* end = nullptr;
  const double read = strtod(text.c_str(), &end);
  if (end == text.c_str()) return {first, errc::invalid_argument};
  value = read;
  return {first + (end - text.c_str()), errc{}};
}

namespace ranges {

template <class Range, class Test, class Projection = identity>
constexpr bool all_of(Range&& range, Test test, Projection projection = {}) {
  return std::all_of(std::begin(range), std::end(range),
                     [&](auto&& x) { return bool(invoke(test, invoke(projection, x))); });
}
template <class Range, class Test, class Projection = identity>
constexpr bool any_of(Range&& range, Test test, Projection projection = {}) {
  return std::any_of(std::begin(range), std::end(range),
                     [&](auto&& x) { return bool(invoke(test, invoke(projection, x))); });
}
template <class Range, class Test, class Projection = identity>
constexpr bool none_of(Range&& range, Test test, Projection projection = {}) {
  return !ranges::any_of(range, std::move(test), std::move(projection));
}
template <class Range, class Test, class Projection = identity>
constexpr auto find_if(Range&& range, Test test, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](auto&& x) { return bool(invoke(test, invoke(projection, x))); });
}
template <class Range, class Value, class Projection = identity>
constexpr auto find(Range&& range, const Value& value, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](auto&& x) { return invoke(projection, x) == value; });
}
template <class Range, class Value, class Projection = identity>
constexpr auto count(Range&& range, const Value& value, Projection projection = {}) {
  return std::count_if(std::begin(range), std::end(range),
                       [&](auto&& x) { return invoke(projection, x) == value; });
}
template <class Range, class Test, class Projection = identity>
constexpr auto count_if(Range&& range, Test test, Projection projection = {}) {
  return std::count_if(std::begin(range), std::end(range),
                       [&](auto&& x) { return bool(invoke(test, invoke(projection, x))); });
}
template <class A, class B, class Equal = std::equal_to<>, class OfA = identity, class OfB = identity>
constexpr bool equal(A&& a, B&& b, Equal same = {}, OfA of_a = {}, OfB of_b = {}) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                    [&](auto&& x, auto&& y) { return bool(invoke(same, invoke(of_a, x), invoke(of_b, y))); });
}
template <class Range, class Before = std::less<>, class Projection = identity>
constexpr void sort(Range&& range, Before before = {}, Projection projection = {}) {
  std::sort(std::begin(range), std::end(range), [&](auto&& x, auto&& y) {
    return bool(invoke(before, invoke(projection, x), invoke(projection, y)));
  });
}
template <class Range, class Before = std::less<>, class Projection = identity>
void stable_sort(Range&& range, Before before = {}, Projection projection = {}) {
  std::stable_sort(std::begin(range), std::end(range), [&](auto&& x, auto&& y) {
    return bool(invoke(before, invoke(projection, x), invoke(projection, y)));
  });
}
template <class Range, class Before = std::less<>, class Projection = identity>
constexpr auto max_element(Range&& range, Before before = {}, Projection projection = {}) {
  return std::max_element(std::begin(range), std::end(range), [&](auto&& x, auto&& y) {
    return bool(invoke(before, invoke(projection, x), invoke(projection, y)));
  });
}
template <class Range, class Before = std::less<>, class Projection = identity>
constexpr auto min_element(Range&& range, Before before = {}, Projection projection = {}) {
  return std::min_element(std::begin(range), std::end(range), [&](auto&& x, auto&& y) {
    return bool(invoke(before, invoke(projection, x), invoke(projection, y)));
  });
}
template <class Range, class Before = std::less<>, class Projection = std::identity>
constexpr auto min(Range&& range, Before before = {}, Projection projection = {}) {
  return *ranges::min_element(range, before, projection);
}
template <class Range, class Value, class Before = std::less<>, class Projection = identity>
constexpr auto upper_bound(Range&& range, const Value& value, Before before = {},
                           Projection projection = {}) {
  return std::upper_bound(std::begin(range), std::end(range), value, [&](const Value& v, auto&& x) {
    return bool(invoke(before, v, invoke(projection, x)));
  });
}
template <class Range, class Value, class Before = std::less<>, class Projection = identity>
constexpr auto lower_bound(Range&& range, const Value& value, Before before = {},
                           Projection projection = {}) {
  return std::lower_bound(std::begin(range), std::end(range), value, [&](auto&& x, const Value& v) {
    return bool(invoke(before, invoke(projection, x), v));
  });
}
template <class Range, class Value, class Before = std::less<>, class Projection = identity>
constexpr bool binary_search(Range&& range, const Value& value, Before before = {},
                             Projection projection = {}) {
  const auto at = ranges::lower_bound(range, value, before, projection);
  return at != std::end(range) && !bool(invoke(before, value, invoke(projection, *at)));
}

template <class In, class Out>
struct in_out_result {
  In in;
  Out out;
};
template <class Range, class Out>
constexpr auto copy(Range&& range, Out out) {
  return in_out_result<decltype(std::end(range)), Out>{std::end(range),
                                                       std::copy(std::begin(range), std::end(range), out)};
}
template <class Range, class Out, class Change>
constexpr void transform(Range&& range, Out out, Change change) {
  std::transform(std::begin(range), std::end(range), out, [&](auto&& x) { return invoke(change, x); });
}
template <class A, class B, class Out>
constexpr void merge(A&& a, B&& b, Out out) {
  std::merge(std::begin(a), std::end(a), std::begin(b), std::end(b), out);
}
template <class Range, class Out, class Test>
constexpr auto copy_if(Range&& range, Out out, Test test) {
  return in_out_result<decltype(std::end(range)), Out>{
      std::end(range), std::copy_if(std::begin(range), std::end(range), out, test)};
}
template <class Range, class Out>
constexpr auto move(Range&& range, Out out) {
  return in_out_result<decltype(std::end(range)), Out>{std::end(range),
                                                       std::move(std::begin(range), std::end(range), out)};
}

}  // namespace ranges

// Numbers from `first` to before `last`, of which transform() makes what it is given; walked from begin to
// end.
namespace views {

template <class Number>
struct numbers {
  Number first, last;
};
template <class Number>
numbers<Number> iota(Number first, Number last) {
  return {first, last};
}
template <class Change>
struct change {
  Change of;
};
template <class Change>
change<Change> transform(Change of) {
  return {std::move(of)};
}
template <class Number, class Change>
class changed_numbers {
 public:
  class iterator {
   public:
    using iterator_category = input_iterator_tag;
    using value_type = invoke_result_t<const Change&, Number>;
    using difference_type = ptrdiff_t;
    using pointer = void;
    using reference = value_type;
    iterator(Number at, const Change* change) : at_(at), change_(change) {}
    value_type operator*() const { return invoke(*change_, at_); }
    iterator& operator++() { return ++at_, *this; }
    iterator operator++(int) { return {at_++, change_}; }
    bool operator==(const iterator& other) const { return at_ == other.at_; }
    bool operator!=(const iterator& other) const { return at_ != other.at_; }

   private:
    Number at_;
    const Change* change_;
  };
  changed_numbers(numbers<Number> of, change<Change> made) : of_(of), change_(std::move(made.of)) {}
  iterator begin() const { return {of_.first, &change_}; }
  iterator end() const { return {of_.last, &change_}; }
  size_t size() const { return of_.last - of_.first; }

 private:
  numbers<Number> of_;
  Change change_;
};
template <class Number, class Change>
changed_numbers<Number, Change> operator|(numbers<Number> of, change<Change> made) {
  return {of, std::move(made)};
}

}  // namespace views

}  // namespace std
