// SPDX-License-Identifier: Apache-2.0
// Heartbeats of processes, here threads: who is lost, who is late, and who just leaves.
#include "comm/watch.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <condition_variable>
#include <cstring>
#include <functional>

#include "comm/forwarding_group.h"
#include "comm/sockets.h"

namespace sluice::core {
namespace {

using std::chrono::milliseconds;

// What the callbacks of a rank were told.
struct Told {
  std::mutex mutex;
  std::condition_variable more;
  std::vector<std::string> lost, late;

  Watch::Callbacks callbacks() {
    const auto into = [this](std::vector<std::string>& list) {
      return [this, &list](const std::string& text) {
        const std::lock_guard lock(mutex);
        list.push_back(text);
        more.notify_all();
      };
    };
    return {into(lost), into(late)};
  }
  bool within(milliseconds limit, const std::function<bool()>& holds) {
    std::unique_lock lock(mutex);
    return more.wait_for(lock, limit, holds);
  }
};

// Ranks whose watches have begun.
struct Watched {
  // Rank `mute` sends no heartbeat.
  using Wrap = std::function<std::unique_ptr<ProcessGroup>(std::unique_ptr<ProcessGroup>)>;
  explicit Watched(int ranks, milliseconds lost_after = milliseconds(300), int mute = -1,
                   const Wrap& wrap = {}) {
    groups = groups_of_threads(ranks);
    if (wrap) {
      for (auto& group : groups) group = wrap(std::move(group));
    }
    activities = std::vector<Activity>(size_t(ranks));
    told = std::vector<Told>(size_t(ranks));
    watches.resize(size_t(ranks));
    std::vector<std::thread> threads;
    for (size_t r = 0; r < size_t(ranks); ++r) {
      activities[r].stage(fmt::format("step {}", r));
      threads.emplace_back([this, r, lost_after, mute] {
        auto watch = Watch::start(*groups[r], activities[r],
                                  {.lost_after = lost_after,
                                   .beat = int(r) == mute ? milliseconds(3'600'000) : milliseconds(20),
                                   .name = fmt::format("host {}", r)},
                                  told[r].callbacks());
        EXPECT_TRUE(watch.ok()) << watch.error().message;
        if (watch.ok()) watches[r] = std::move(*watch);
      });
    }
    for (std::thread& t : threads) t.join();
  }

  std::vector<std::unique_ptr<ProcessGroup>> groups;
  std::vector<Activity> activities;
  std::vector<Told> told;
  std::vector<std::unique_ptr<Watch>> watches;
};

TEST(Heartbeats, NobodyIsLostWhoLeaves) {
  Watched w(3, milliseconds(200));
  std::this_thread::sleep_for(milliseconds(500));
  w.watches[1].reset();
  std::this_thread::sleep_for(milliseconds(300));
  w.watches[0].reset();
  w.watches[2].reset();
  for (const Told& t : w.told) {
    EXPECT_TRUE(t.lost.empty()) << t.lost.front();
    EXPECT_TRUE(t.late.empty()) << t.late.front();
  }
}

TEST(Heartbeats, WhoIsLostIsNamedByRank0AndAllEnd) {
  Watched w(3, milliseconds(300), 2);
  for (Told* told : {&w.told[0], &w.told[1]})
    ASSERT_TRUE(told->within(milliseconds(5000), [&] { return !told->lost.empty(); }));
  EXPECT_NE(
      w.told[0].lost.front().find("process 2 of 3 (host 2) gave no heartbeat for 0 s; it was at: its start"),
      std::string::npos)
      << w.told[0].lost.front();
  EXPECT_EQ(w.told[1].lost.front(), "");
  w.watches.clear();
}

// It has said why.
TEST(Heartbeats, WhoAbandonsEndsTheOthersWithoutAWord) {
  for (const size_t who : {size_t{0}, size_t{2}}) {
    Watched w(3);
    w.watches[who]->abandon();
    for (size_t r = 0; r < 3; ++r) {
      if (r == who) continue;
      ASSERT_TRUE(w.told[r].within(milliseconds(5000), [&] { return !w.told[r].lost.empty(); })) << r;
      EXPECT_EQ(w.told[r].lost.front(), "");
    }
    EXPECT_TRUE(w.told[who].lost.empty());
    w.watches.clear();
  }
}

// Whether its group has ended, or waits for the others in its end.
TEST(Heartbeats, WhoHasLeftAndIsWaitedForIsLost) {
  for (const bool ended : {true, false}) {
    Watched w(3);
    w.activities[0].enter("a barrier");
    w.activities[1].enter("a barrier");
    if (ended) {
      w.watches[2].reset();
    } else {
      w.watches[2]->leave();
    }
    ASSERT_TRUE(w.told[0].within(milliseconds(5000), [&] { return !w.told[0].lost.empty(); }));
    EXPECT_NE(
        w.told[0].lost.front().find("process 2 of 3 (host 2) has left, and is waited for; it was at: step 2"),
        std::string::npos)
        << w.told[0].lost.front();
    w.watches.clear();
  }
}

TEST(Heartbeats, WhoIsWaitedForIsNamedWithWhatItIsAt) {
  Watched w(3);
  w.activities[0].enter("a barrier");
  w.activities[1].enter("a barrier");
  w.activities[2].task("attention.L3");
  ASSERT_TRUE(w.told[0].within(milliseconds(5000), [&] { return w.told[0].late.size() >= 2; }));
  EXPECT_NE(w.told[0].late.front().find("process 2 of 3 (host 2) is late"), std::string::npos)
      << w.told[0].late.front();
  EXPECT_NE(w.told[0].late.front().find("step 2, attention.L3"), std::string::npos) << w.told[0].late.front();
  for (const std::string& text : w.told[0].late) EXPECT_EQ(text.find("process 1"), std::string::npos) << text;
  EXPECT_TRUE(w.told[0].lost.empty());  // it is late, and alive
  EXPECT_TRUE(w.told[1].late.empty());
  w.watches.clear();
}

// As no call of one answers that of the other.
TEST(Heartbeats, WhoWaitForEachOtherInDifferentCallsEnd) {
  Watched w(3);
  w.activities[0].enter("a broadcast of 8 bytes");
  w.activities[1].enter("a broadcast of 8 bytes");
  w.activities[2].enter("a gathering of 1 bytes each");
  for (size_t r = 0; r < 3; ++r)
    ASSERT_TRUE(w.told[r].within(milliseconds(5000), [&] { return !w.told[r].lost.empty(); })) << r;
  EXPECT_EQ(
      w.told[0].lost.front(),
      "process 0 of 3 (host 0) waits in a broadcast of 8 bytes, at: step 0; process 2 of 3 (host 2) waits in "
      "a gathering of 1 bytes each, at: step 2: they wait for each other");
  EXPECT_TRUE(w.told[0].late.empty());
  w.watches.clear();
}

// A rank that lets strangers go first, a hundred ways to be one: they say nothing, or what a rank says with
// another token, number or kind, cut short, byte by byte, again and again, or behind other words. More come
// as long as somebody listens.
class BehindStrangers final : public ForwardingGroup {
 public:
  using ForwardingGroup::ForwardingGroup;
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    SLUICE_TRY(ForwardingGroup::all_gather(own, all));
    constexpr size_t kPortAt = 96 + 1024;  // behind rank 0's name and addresses; then its token
    if (rank() == 0 || own.size() < kPortAt || !strangers_.empty()) return {};
    uint16_t port = 0;
    uint64_t token = 0;
    std::memcpy(&port, all.data() + kPortAt, sizeof port);
    std::memcpy(&token, all.data() + kPortAt + 8, sizeof token);
    for (uint32_t way = 0; way < 100; ++way) {
      Socket socket = connect_to("127.0.0.1", port, milliseconds(1000));
      EXPECT_TRUE(socket) << way;
      std::vector<uint32_t> beat(44, way % 3 == 0 ? ~uint32_t{0} : way);
      beat[0] = way % 5;                              // its kind, of which the first is a hello
      beat[1] = way % 8 == 7 ? 0x80000000 : way % 4;  // its rank
      const uint64_t other = way % 8 < 6 ? token ^ uint64_t { 1 } << (way % 64) : way % 16 < 8 ? 0 : ~token;
      std::memcpy(&beat[2], &other, sizeof other);
      auto said = std::as_bytes(std::span(beat));
      if (way % 4 == 1) said = said.first(said.size() * way / 100);
      for (uint32_t times = 0; times < (way % 4 == 2 ? 300 : way % 4); ++times)
        ::send(socket.fd(), said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (way % 6 == 5) ::shutdown(socket.fd(), SHUT_WR);
      if (way % 10 != 9) strangers_.push_back(std::move(socket));
    }
    flood_ = std::thread([this, port] {
      for (size_t i = 0; i < 3000; ++i) {
        const Socket more = connect_to("127.0.0.1", port, milliseconds(1000));
        if (!more) return;
        ::send(strangers_[i % strangers_.size()].fd(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    });
    return {};
  }
  ~BehindStrangers() override {
    if (flood_.joinable()) flood_.join();
  }

 private:
  std::vector<Socket> strangers_;
  std::thread flood_;
};

TEST(Heartbeats, BeginBesideStrangersOfAHundredWays) {
  Watched w(3, milliseconds(3000), -1, [](std::unique_ptr<ProcessGroup> group) {
    return std::make_unique<BehindStrangers>(std::move(group));
  });
  std::vector<float> sums(3);
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      std::vector<float> all(3);
      const float own = 0.1f * float(r + 1);
      EXPECT_TRUE(w.groups[r]
                      ->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)))
                      .ok());
      sums[r] = all[0] + all[1] + all[2];
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(sums, std::vector<float>(3, 0.1f + 0.2f + 0.1f * 3));
  // Each is heard as who it is, by whoever leaves.
  w.watches.clear();
  for (const Told& t : w.told) {
    EXPECT_TRUE(t.lost.empty()) << t.lost.front();
    EXPECT_TRUE(t.late.empty()) << t.late.front();
  }
}

TEST(Heartbeats, WhoGoesOnIsNotLate) {
  Watched w(2, milliseconds(200));
  for (int i = 0; i < 25; ++i) {
    for (Activity& a : w.activities) a.enter("a barrier");
    std::this_thread::sleep_for(milliseconds(20));
    for (Activity& a : w.activities) a.leave();
  }
  w.watches.clear();
  EXPECT_TRUE(w.told[0].late.empty()) << w.told[0].late.front();
}

TEST(Heartbeats, CallsAreCounted) {
  auto groups = groups_of_threads(1);
  Activity activity;
  const auto counted = counted_by(activity, std::move(groups[0]));
  ASSERT_TRUE(counted->barrier().ok());
  ASSERT_TRUE(gathered(*counted, 1).ok());
  EXPECT_EQ(activity.now().calls, 2u);
  EXPECT_FALSE(activity.now().waiting);
}

}  // namespace
}  // namespace sluice::core
