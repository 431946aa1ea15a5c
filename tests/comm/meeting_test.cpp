// SPDX-License-Identifier: Apache-2.0
// Processes that meet over TCP, here threads: who gets which rank, what they send, and who is missing.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <thread>

#include "comm/forwarding_group.h"
#include "comm/sum_in_order.h"
#include "comm/tcp/connections.h"
#include "comm/tcp/keyed_hash.h"

namespace sluice::core {
namespace {

using std::chrono::milliseconds;

// A port that nobody listens on now.
uint16_t free_port() {
  return listen_on(0)->port;
}

struct Came {
  int rank = 0, size = 1;
  std::string host = "one host", job = {}, secret = {};
};

// What each that comes gets; process 0's notes go to `notes`.
std::vector<Result<Connections>> meet_all(const std::vector<Came>& all, uint16_t port, milliseconds limit,
                                          std::vector<std::string>* notes = nullptr) {
  std::vector<std::optional<Result<Connections>>> found(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      const ProcessLaunch launch{all[i].rank, all[i].size, "torchrun",
                                 MeetingPoint{"localhost", port, "MASTER_PORT", all[i].job, all[i].secret}};
      MeetingOptions options;
      options.limit = limit, options.note_every = milliseconds(50), options.host = all[i].host;
      if (all[i].rank == 0 && notes != nullptr)
        options.waiting = [&](const std::string& text) { notes->push_back(text); };
      found[i].emplace(meet(launch, options));
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<Result<Connections>> out;
  for (auto& f : found) out.push_back(std::move(*f));
  return out;
}

constexpr milliseconds kLong{20'000};

// Groups of so many ranks that have met.
std::vector<std::unique_ptr<ProcessGroup>> groups_of(int ranks) {
  std::vector<Came> all;
  for (int r = 0; r < ranks; ++r) all.push_back({(r + 1) % ranks, ranks, r % 2 == 0 ? "a" : "b"});
  std::vector<std::unique_ptr<ProcessGroup>> out(static_cast<size_t>(ranks));
  for (auto& met : meet_all(all, free_port(), kLong)) {
    EXPECT_TRUE(met.ok()) << met.message();
    if (!met.ok()) continue;
    const int rank = met->rank;
    out[size_t(rank)] = group_over(std::move(*met));
  }
  return out;
}

void on_ranks(std::span<const std::unique_ptr<ProcessGroup>> groups,
              const std::function<void(ProcessGroup&)>& run) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&] { run(*group); });
  for (std::thread& t : threads) t.join();
}

TEST(Meeting, GivesEachItsRankAndHost) {
  const auto groups = groups_of(5);
  on_ranks(groups, [&](ProcessGroup& group) {
    ASSERT_EQ(group.size(), 5);
    const auto all = gathered(group, group.rank());
    ASSERT_TRUE(all.ok()) << all.message();
    EXPECT_EQ(*all, (std::vector<int>{0, 1, 2, 3, 4}));
    // Ranks 1, 3 and 0 came from host a, 2 and 4 from b.
    const bool a = group.rank() % 2 == 1 || group.rank() == 0;
    EXPECT_EQ(group.host(), a ? 0 : 2);
    EXPECT_EQ(group.here(), a ? 3 : 2);
    const auto place = place_here(group);
    ASSERT_TRUE(place.ok());
    EXPECT_EQ(*place, (std::vector<int>{0, 1, 0, 2, 1})[size_t(group.rank())]);
  });
}

// Long messages both ways at once, of which neither side's sockets hold all.
TEST(Meeting, SendsLongMessagesBothWays) {
  const auto groups = groups_of(3);
  on_ranks(groups, [&](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
    std::vector<std::byte> out(40 << 20, std::byte(group.rank() + 1)), in(out.size());
    ASSERT_TRUE(group.exchange(out, next, in, last).ok());
    EXPECT_EQ(in, std::vector<std::byte>(out.size(), std::byte(last + 1)));
    std::vector<std::byte> given(1000, std::byte(group.rank() == 1 ? 7 : 0));
    ASSERT_TRUE(group.broadcast(given, 1).ok());
    EXPECT_EQ(given, std::vector<std::byte>(1000, std::byte(7)));
    ASSERT_TRUE(group.barrier().ok());
    std::vector<float> values(1000, float(group.rank()));
    ASSERT_TRUE(group.sum_in_any_order(values).ok());
    EXPECT_EQ(values, std::vector<float>(1000, 3.0f));
  });
}

// What a root gives to more than one other passes through them.
TEST(Meeting, GivesEveryRankWhatOneHas) {
  const auto groups = groups_of(4);
  on_ranks(groups, [&](ProcessGroup& group) {
    for (int root = 0; root < 4; ++root) {
      std::vector<std::byte> given((1 << 20) + 3), own(given.size());
      for (size_t i = 0; i < given.size(); ++i) given[i] = std::byte(i % 251 + size_t(root));
      if (group.rank() == root) own = given;
      ASSERT_TRUE(group.broadcast(own, root).ok());
      EXPECT_EQ(own, given) << "rank " << group.rank() << " of root " << root;
    }
  });
}

// A library that launched a group and is slow.
class Slow final : public ForwardingGroup {
 public:
  explicit Slow(std::unique_ptr<ProcessGroup> group) : ForwardingGroup(std::move(group)) {}
  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    ++exchanges;
    std::this_thread::sleep_for(milliseconds(100));
    return ForwardingGroup::exchange(out, to, in, from);
  }
  Status sum_in_any_order(std::span<float> values) override {
    ++sums;
    return ForwardingGroup::sum_in_any_order(values);
  }
  static inline std::atomic<int> exchanges, sums;
};

TEST(ExchangeByTcp, TakesThePlaceOfALibraryThatIsSlower) {
  auto groups = groups_of_threads(3);
  for (auto& group : groups) group = std::make_unique<Slow>(std::move(group));
  std::vector<std::jthread> threads;
  std::atomic<int> by_tcp = 0;
  for (auto& group : groups) {
    threads.emplace_back([&] {
      const auto found = exchange_by_tcp(group);
      ASSERT_TRUE(found.ok()) << found.message();
      by_tcp += found->empty() ? 1 : 0;
    });
  }
  threads.clear();
  EXPECT_EQ(by_tcp, 3);
  Slow::exchanges = 0, Slow::sums = 0;
  on_ranks(groups, [&](ProcessGroup& group) {
    EXPECT_EQ(*gathered(group, group.rank()), (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(group.here(), 3);
    std::vector<float> values(1000, float(group.rank()));
    OrderedSum sum(group);
    ASSERT_TRUE(sum(std::as_writable_bytes(std::span(values)), DType::F32).ok());
    EXPECT_EQ(values, std::vector<float>(1000, 3.0f));
    EXPECT_EQ(Slow::exchanges, 0);
    ASSERT_TRUE(group.sum_in_any_order(values).ok());
  });
  EXPECT_EQ(Slow::sums, 3) << "the library's own sums are the library's";
}

// A library that takes no time: it moves nothing.
class Instant final : public ForwardingGroup {
 public:
  using ForwardingGroup::ForwardingGroup;
  Status exchange(std::span<const std::byte>, int, std::span<std::byte>, int) override { return {}; }
};

TEST(ExchangeByTcp, LeavesAFastLibraryItsPlace) {
  auto groups = groups_of_threads(2);
  for (auto& group : groups) group = std::make_unique<Instant>(std::move(group));
  const ProcessGroup* const before = groups[0].get();
  std::vector<std::jthread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&] {
      const auto found = exchange_by_tcp(group);
      ASSERT_TRUE(found.ok()) << found.message();
      EXPECT_NE(found->find("by TCP"), std::string::npos) << *found;
    });
  }
  threads.clear();
  EXPECT_EQ(groups[0].get(), before);
}

TEST(Meeting, SumsInTheOrderOfOneProcess) {
  const auto groups = groups_of(3);
  const std::vector<float> of_rank{1e8f, 3.0f, -1e8f};
  on_ranks(groups, [&](ProcessGroup& group) {
    std::vector<float> values(777, of_rank[size_t(group.rank())]);
    OrderedSum sum(group);
    ASSERT_TRUE(sum(std::as_writable_bytes(std::span(values)), DType::F32).ok());
    EXPECT_EQ(values, std::vector<float>(777, (of_rank[0] + of_rank[1]) + of_rank[2]));
    // The first two alone.
    const auto some = group.first(2);
    ASSERT_TRUE(some.ok());
    ASSERT_EQ(*some != nullptr, group.rank() < 2);
    if (*some != nullptr) {
      EXPECT_EQ(*gathered(**some, group.rank()), (std::vector<int>{0, 1}));
      EXPECT_EQ((*some)->here(), group.rank() == 1 || group.rank() == 0 ? 2 : 1);
    }
  });
}

TEST(Meeting, NamesWhoDoesNotComeToAllWhoDid) {
  std::vector<std::string> notes;
  const uint16_t port = free_port();
  const auto met = meet_all({{0, 4}, {2, 4}}, port, milliseconds(1000), &notes);
  for (const auto& m : met) {
    ASSERT_FALSE(m.ok());
    EXPECT_EQ(m.message(), fmt::format("processes 1, 3 of 4 have not come to localhost:{} within 1 s", port));
  }
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes.back(), fmt::format("processes 1, 3 of 4 have not come to localhost:{} yet", port));
}

TEST(Meeting, SaysWhereProcess0IsNot) {
  const uint16_t port = free_port();
  const auto met = meet_all({{1, 2}}, port, milliseconds(300));
  ASSERT_FALSE(met[0].ok());
  EXPECT_EQ(
      met[0].message(),
      fmt::format("process 0 of 2 cannot be reached at localhost:{} within 0.3 s: Connection refused", port));
}

TEST(Meeting, NeedsThePort) {
  const auto taken = listen_on(0);
  const auto met = meet_all({{0, 2}}, taken->port, milliseconds(300));
  ASSERT_FALSE(met[0].ok());
  EXPECT_EQ(met[0].message(),
            fmt::format(
                "localhost:{} cannot be listened on by process 0: no TCP port can be opened: Address already "
                "in use; name another MASTER_PORT",
                taken->port));
}

// Who says otherwise is refused, and nobody else is disturbed.
TEST(Meeting, RefusesThoseOfAnotherSizeOrJob) {
  for (const auto& [wrong, why] :
       {std::pair{Came{1, 3, "h", "job a"},
                  "came to localhost:{} with WORLD_SIZE = 3; that of process 0 is 2"},
        {Came{1, 2, "h", "job b"}, "came to localhost:{}: TORCHELASTIC_RUN_ID or SLUICE_TOKEN differs"},
        {Came{1, 2, "h", "job a", "a guess"},
         "came to localhost:{}: TORCHELASTIC_RUN_ID or SLUICE_TOKEN differs"}}) {
    const uint16_t port = free_port();
    std::vector<Result<Connections>> first;
    std::thread waits([&] { first = meet_all({{0, 2, "h", "job a"}}, port, kLong); });
    const auto refused = meet_all({wrong}, port, kLong);
    const auto right = meet_all({{1, 2, "h", "job a"}}, port, kLong);
    waits.join();
    ASSERT_FALSE(refused[0].ok());
    EXPECT_NE(refused[0].message().find(fmt::format(fmt::runtime(why), port)), std::string::npos)
        << refused[0].message();
    EXPECT_TRUE(right[0].ok()) << right[0].message();
    EXPECT_TRUE(first[0].ok()) << first[0].message();
  }
}

TEST(Meeting, RefusesARankThatIsTakenAndNamesItWhereOneIsMissing) {
  const uint16_t port = free_port();
  const auto met = meet_all({{0, 3}, {1, 3}, {1, 3}}, port, milliseconds(1000));
  const std::string second = fmt::format("a second process came to localhost:{} with RANK = 1", port);
  ASSERT_FALSE(met[0].ok());
  EXPECT_EQ(met[0].message(),
            fmt::format("process 2 of 3 has not come to localhost:{} within 1 s; {}", port, second));
  ASSERT_FALSE(met[1].ok());
  ASSERT_FALSE(met[2].ok());
  EXPECT_TRUE(met[1].message() == second || met[2].message() == second) << met[1].message();
}

// Others may come by, say something else or nothing, and go.
TEST(Meeting, IsNotDisturbedByStrangers) {
  const uint16_t port = free_port();
  std::vector<Socket> strangers;
  std::thread visit([&] {
    for (int i = 0; i < 200 && strangers.size() < 3; ++i) {
      Socket socket = connect_to("127.0.0.1", port, milliseconds(100));
      if (!socket) {
        std::this_thread::sleep_for(milliseconds(5));
        continue;
      }
      if (strangers.size() == 1) ::send(socket.fd(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
      strangers.push_back(std::move(socket));
    }
  });
  std::vector<Result<Connections>> met;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(300));
    for (auto& m : meet_all({{1, 2}}, port, kLong)) met.push_back(std::move(m));
  });
  const auto first = meet_all({{0, 2}}, port, kLong);
  visit.join();
  late.join();
  EXPECT_EQ(strangers.size(), 3u);
  EXPECT_TRUE(first[0].ok()) << first[0].message();
  EXPECT_TRUE(met[0].ok()) << met[0].message();
}

// A hundred ways to be somebody else: what a rank says of itself, cut short, changed at some place, or behind
// other words.
TEST(Meeting, TakesNobodyOfAHundredWays) {
  const uint16_t port = free_port();
  std::vector<Result<Connections>> first;
  std::thread waits([&] { first = meet_all({{0, 2, "h", "job", "secret"}}, port, kLong); });
  constexpr uint64_t kMagic = 0x736c756963653032;
  std::vector<Socket> strangers;
  for (size_t way = 0; way < 100; ++way) {
    Socket socket;
    while (!socket) socket = connect_to("127.0.0.1", port, milliseconds(1000));
    // Magic, proof, number, rank and size, host, port, addresses.
    std::vector<uint64_t> words(6 + 128, way % 3 == 0 ? ~uint64_t{0} : way);
    words[0] = way % 5 == 4 ? kMagic + way : kMagic;
    words[3] = way % 7 == 0 ? uint64_t{2} << 32 | (way % 4) : uint64_t{2} << 32 | 1;
    words[5] = port;
    auto said = std::as_bytes(std::span(words));
    if (way % 2 == 1) said = said.first(said.size() * way / 100);
    // Some send back what they are challenged with, some say everything twice, some end what they say.
    if (way % 4 == 2) (void)::recv(socket.fd(), words.data(), 16, MSG_DONTWAIT);
    for (size_t times = 0; times < 1 + way % 3; ++times)
      ::send(socket.fd(), said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (way % 6 == 5) ::shutdown(socket.fd(), SHUT_WR);
    if (way % 10 != 9) strangers.push_back(std::move(socket));
  }
  auto met = meet_all({{1, 2, "h", "job", "secret"}}, port, kLong);
  waits.join();
  ASSERT_TRUE(first[0].ok()) << first[0].message();
  ASSERT_TRUE(met[0].ok()) << met[0].message();
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  groups.push_back(group_over(std::move(*first[0])));
  groups.push_back(group_over(std::move(*met[0])));
  on_ranks(groups, [](ProcessGroup& group) {
    std::vector<float> values(777, group.rank() == 0 ? 0.1f : 0.7f);
    OrderedSum sum(group);
    ASSERT_TRUE(sum(std::as_writable_bytes(std::span(values)), DType::F32).ok());
    EXPECT_EQ(values, std::vector<float>(777, 0.1f + 0.7f));
  });
}

// Another program that listens there is none that knows the job.
TEST(Meeting, IsWithNobodyWhoDoesNotKnowTheSecret) {
  const auto door = listen_on(0, "127.0.0.1");
  ASSERT_TRUE(door.ok()) << door.message();
  std::atomic<bool> over = false;
  std::thread impostor([&] {
    std::vector<Socket> callers;
    while (!over) {
      if (!ready(door->socket.fd(), POLLIN, milliseconds(10))) continue;
      callers.push_back(door->accept());
      // The words of process 0, to anybody: a challenge, and an answer that proves nothing.
      const uint64_t words[] = {0x736c756963653032, 1, 0x736c756963653032, 2, 3};
      ::send(callers.back().fd(), words, sizeof words, MSG_NOSIGNAL);
      const std::vector<std::byte> rest(16384);
      ::send(callers.back().fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    }
  });
  const auto met = meet_all({{1, 2, "h", "job", "secret"}}, door->port, milliseconds(300));
  over = true;
  impostor.join();
  ASSERT_FALSE(met[0].ok());
  EXPECT_NE(met[0].message().find("does not know TORCHELASTIC_RUN_ID and SLUICE_TOKEN"), std::string::npos)
      << met[0].message();
}

// More that say nothing than are listened to at once.
TEST(Meeting, IsNotDisturbedByManyWhoSayNothing) {
  const uint16_t port = free_port();
  std::vector<Result<Connections>> first;
  std::thread waits([&] { first = meet_all({{0, 2}}, port, kLong); });
  std::vector<Socket> idle;
  while (idle.size() < 60) {
    if (Socket socket = connect_to("127.0.0.1", port, milliseconds(1000))) idle.push_back(std::move(socket));
  }
  const auto met = meet_all({{1, 2}}, port, kLong);
  waits.join();
  EXPECT_TRUE(met[0].ok()) << met[0].message();
  EXPECT_TRUE(first[0].ok()) << first[0].message();
}

TEST(Meeting, IsReachedFromItsInterfaceAlone) {
  const uint16_t port = free_port();
  std::vector<Result<Connections>> first;
  std::thread waits([&] { first = meet_all({{0, 2}}, port, kLong); });
  while (!connect_to("127.0.0.1", port, milliseconds(1000))) std::this_thread::yield();
  for (const std::string& address : own_addresses()) {
    if (!is_loopback(address)) {
      EXPECT_FALSE(connect_to(address, port, milliseconds(1000))) << address;
    }
  }
  const auto met = meet_all({{1, 2}}, port, kLong);
  waits.join();
  EXPECT_TRUE(met[0].ok() && first[0].ok());
}

TEST(Meeting, WaitsForNobodyWhoComesAndSaysNothing) {
  std::vector<Came> all{{0, 2}, {1, 2}};
  auto met = meet_all(all, free_port(), kLong);
  ASSERT_TRUE(met[0].ok() && met[1].ok());
  const auto first = group_over(std::move(*met[0]), milliseconds(50));
  std::vector<std::byte> both(2);
  const std::byte own{};
  const Status gathered_all = first->all_gather({&own, 1}, both);
  ASSERT_FALSE(gathered_all.ok());
  EXPECT_EQ(gathered_all.message(), "process 1 of 2 has said nothing for 0 s");
}

TEST(Addresses, AreReadToTheirEnd) {
  char full[16];
  std::fill(std::begin(full), std::end(full), '1');
  EXPECT_TRUE(addresses_in(full).empty());
  const std::string_view list = "10.0.0.1 \x1b[2J ::1  nonsense 127.0.0.1 ";
  EXPECT_EQ(addresses_in(list), (std::vector<std::string>{"10.0.0.1", "::1", "127.0.0.1"}));
  EXPECT_TRUE(addresses_in(std::string_view()).empty());
}

// The vector of the paper's appendix.
TEST(KeyedHash, IsSipHash) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 15; ++i) bytes.push_back(std::byte(i));
  EXPECT_EQ(KeyedHash(0x0706050403020100, 0x0f0e0d0c0b0a0908)(bytes), 0xa129ca6149be45e5);
  EXPECT_NE(KeyedHash::of_secret("a")(bytes), KeyedHash::of_secret("b")(bytes));
}

TEST(Meeting, ACallWhoseOtherEndHasGoneIsAnError) {
  auto groups = groups_of(2);
  groups[1].reset();
  std::vector<std::byte> all(2);
  const std::byte own{};
  const Status gathered_all = groups[0]->all_gather({&own, 1}, all);
  ASSERT_FALSE(gathered_all.ok());
  EXPECT_EQ(gathered_all.message(), "the connection to process 1 has ended");
}

TEST(Meeting, LengthsThatDifferAreAnError) {
  const auto groups = groups_of(2);
  on_ranks(groups, [&](ProcessGroup& group) {
    std::vector<std::byte> bytes(group.rank() == 0 ? 4 : 8);
    const Status sent = group.broadcast(bytes, 0);
    if (group.rank() == 0) return;
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.message(), "process 0 sent 4 bytes, awaited are 8");
  });
}

}  // namespace
}  // namespace sluice::core
