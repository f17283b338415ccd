// Tasks begin when what they wait for has ended: delays, lanes, transfers, joins, failures.
#include "traffic/graph_traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "engine/clos.hpp"

namespace loomnet {
namespace {

TEST(GraphTraffic, DelaysFollowTheirGraph) {
  Network network(1);
  GraphTraffic graph(network);
  const auto a = graph.add({.duration = microseconds(2)});
  const auto b = graph.add({.duration = microseconds(5)});
  const auto join = graph.add({});
  const auto last = graph.add({.duration = microseconds(1)});
  graph.depend(join, a);
  graph.depend(join, b);
  graph.depend(last, join);
  graph.start(microseconds(10));
  EXPECT_FALSE(network.run_until(microseconds(1000))) << "stopped at its end";
  ASSERT_TRUE(graph.done());
  EXPECT_EQ(graph.results()[a].end, microseconds(12));
  EXPECT_EQ(graph.results()[join].begin, microseconds(15));
  EXPECT_EQ(graph.results()[last].end, microseconds(16));
}

TEST(GraphTraffic, ALaneRunsOneDelayAfterAnother) {
  Network network(1);
  GraphTraffic graph(network);
  for (int i = 0; i < 3; ++i) graph.add({.duration = microseconds(3), .lane = 1});
  const auto other = graph.add({.duration = microseconds(3), .lane = 2});
  graph.start({});
  network.run_until(microseconds(100));
  ASSERT_TRUE(graph.done());
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(graph.results()[i].end, microseconds(3 * (i + 1)));
  EXPECT_EQ(graph.results()[other].end, microseconds(3));
}

TEST(GraphTraffic, OfThoseThatWaitALaneTakesTheLowestNumber) {
  Network network(1);
  GraphTraffic graph(network);
  const auto late = graph.add({.duration = microseconds(1), .lane = 1});   // ready at 5 us
  const auto early = graph.add({.duration = microseconds(1), .lane = 1});  // ready at 2 us
  const auto freed = graph.add({.duration = microseconds(1), .lane = 1});  // ready when `first` ends
  const auto waiting = graph.add({.duration = microseconds(1), .lane = 1});
  const auto first = graph.add({.duration = microseconds(10), .lane = 1});
  const auto begin = graph.add({.duration = microseconds(1)});
  for (const auto& [task, us] : {std::pair{late, 5}, {early, 2}, {waiting, 3}}) {
    graph.depend(task, graph.add({.duration = microseconds(us)}));
  }
  graph.depend(waiting, begin);
  graph.depend(freed, first);
  graph.start({});
  network.run_until(microseconds(100));
  ASSERT_TRUE(graph.done());
  int us = 10;
  for (const auto task : {late, early, freed, waiting}) {
    EXPECT_EQ(graph.results()[task].begin, microseconds(us++)) << task;
  }
}

TEST(GraphTraffic, FromItsStopOnNoTaskBegins) {
  for (const auto& [stop, begun, end] : {std::tuple{1, 1, 3}, {3, 1, 3}, {4, 2, 6}, {6, 2, 6}, {7, 3, 9}}) {
    Network network(1);
    testing::Clos clos(network, {.planes = 1});
    GraphTraffic graph(network);
    for (std::uint32_t i = 0; i < 3; ++i) {
      graph.add({.duration = microseconds(3), .host = 0});
      if (i) graph.depend(i, i - 1);
    }
    graph.start({}, microseconds(stop));
    EXPECT_FALSE(network.run_until(microseconds(100))) << "stopped at its end";
    ASSERT_TRUE(graph.done());
    // It stops within a lookahead of the time from which nothing is under way and nothing can begin.
    const int over = begun == 3 ? end : std::max(end, stop);
    EXPECT_GE(network.now(), microseconds(over));
    EXPECT_LE(network.now(), microseconds(over + 1));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(graph.results()[i].begin == kNever, i >= begun) << "stop " << stop << ", task " << i;
      EXPECT_EQ(graph.results()[i].end == kNever, i >= begun) << "stop " << stop << ", task " << i;
    }
  }
}

TEST(GraphTraffic, ADelayOfNoHostIsNotWaitedFor) {
  Network network(1);
  GraphTraffic graph(network);
  graph.add({.duration = microseconds(50)});
  graph.start({}, microseconds(2));
  EXPECT_FALSE(network.run_until(microseconds(100)));
  EXPECT_TRUE(graph.done());
  EXPECT_EQ(network.now(), microseconds(2));
  GraphTraffic other(network);
  EXPECT_THROW(other.start(microseconds(9), microseconds(9)), std::invalid_argument);
}

TEST(GraphTraffic, AnEmptyGraphIsDone) {
  Network network(1);
  GraphTraffic graph(network);
  EXPECT_TRUE(graph.done());
  graph.start({});
  EXPECT_FALSE(network.run_until(microseconds(1)));
}

TEST(GraphTraffic, RefusesWhatIsNotThere) {
  Network network(1);
  GraphTraffic graph(network);
  const auto a = graph.add({});
  EXPECT_THROW(graph.depend(a, a), std::invalid_argument);
  EXPECT_THROW(graph.depend(a, 7), std::invalid_argument);
  EXPECT_THROW(graph.add({.duration = Picoseconds{-1}}), std::invalid_argument);
}

TEST(GraphTraffic, ALongChainDoesNotRecurse) {
  Network network(1);
  GraphTraffic graph(network);
  constexpr std::uint32_t kTasks = 300'000;
  for (std::uint32_t i = 0; i < kTasks; ++i) {
    graph.add({});
    if (i) graph.depend(i, i - 1);
  }
  graph.start({});
  network.run_until(microseconds(1));
  EXPECT_TRUE(graph.done());
}

}  // namespace
}  // namespace loomnet
