// SPDX-License-Identifier: Apache-2.0
// Pages of benchmarks and comparisons in a real browser: every picture is drawn, its dots and bars lie where
// the numbers of the JSON lines are by the picture's own scale, and there are no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/attention.h"
#include "bench/cell_pages.h"
#include "bench/results.h"
#include "estimate/estimate.h"
#include "report/browser.h"
#include "support/temp_dir.h"
#include "what_if/comparison.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// What a picture shows, read from what the browser laid out: the vertices of its lines by the labels of its
// axes, which are the only texts that are numbers (their logarithms, on axes by powers), and the lengths of
// its bars.
constexpr const char* kRead = R"(<script>
  const out = [];
  for (const img of document.querySelectorAll('img')) {
    const source = decodeURIComponent(img.src.slice(img.src.indexOf(',') + 1)), at = document.createElement('div');
    at.innerHTML = source.slice(source.indexOf('<svg'));
    document.body.append(at);
    const svg = at.querySelector('svg'), ticks = {x: [], y: []};
    for (const t of svg.querySelectorAll('text')) {
      const words = t.textContent.replaceAll(',', '').trim(), value = Number(words);
      if (words === '' || !Number.isFinite(value)) continue;
      const px = Number(t.getAttribute('x')), py = Number(t.getAttribute('y'));
      if (t.getAttribute('text-anchor') === 'end') ticks.y.push([py - 4, value]);
      if (t.getAttribute('text-anchor') === 'middle') ticks.x.push([px, value]);
    }
    // An axis is by powers where its labels lie as their logarithms do, and not as they do themselves.
    const along = (t, f) => p => f(t[0][1]) + (p - t[0][0]) * (f(t.at(-1)[1]) - f(t[0][1])) / (t.at(-1)[0] - t[0][0]);
    const off = (t, f) => Math.max(...t.map(([p, v]) => Math.abs(along(t, f)(p) - f(v)))) / Math.abs(f(t.at(-1)[1]) - f(t[0][1]));
    const plain = v => v, byPowers = t => t.length > 2 && t.every(([, v]) => v > 0) && off(t, Math.log) < off(t, plain);
    const lines = [], powers = [byPowers(ticks.x), byPowers(ticks.y)];
    if (ticks.x.length > 1 && ticks.y.length > 1) {
      const x = along(ticks.x, powers[0] ? Math.log : plain), y = along(ticks.y, powers[1] ? Math.log : plain);
      for (const p of svg.querySelectorAll('polyline')) {
        lines.push(p.getAttribute('points').trim().split(' ').map(v => v.split(',').map(Number)).map(v => [x(v[0]), y(v[1])]));
      }
    }
    const bars = [...svg.querySelectorAll('rect')].filter(r => r.querySelector('title')).map(r => r.getBBox().width);
    out.push({drawn: img.naturalWidth > 0, title: svg.querySelector('title')?.textContent, lines, powers, bars,
              wide: svg.getBBox().width <= svg.viewBox.baseVal.width + 1});
  }
  document.body.dataset.pictures = encodeURIComponent(JSON.stringify(out));
</script></body>)";

std::string decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
    } else {
      out += char(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
  }
  return out;
}

class Pictures : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = find_browser();
    if (!browser_) GTEST_SKIP() << "no browser on this machine; apt-get install chromium";
  }

  // Draws the page and compares each of its pictures with the lines.
  void check(const Page& page) {
    std::map<std::string, std::vector<json>> lines, bars;
    std::istringstream all(to_jsonl(page, {"a machine", "0.1 abc"}));
    for (std::string line; std::getline(all, line);) {
      const json j = json::parse(line);
      if (!j.contains("picture")) continue;
      (j.contains("points") ? lines : bars)[j["picture"]].push_back(j);
    }
    std::string html = to_html(page);
    // The page itself allows no script.
    const std::string policy = "default-src 'none';";
    const size_t allowed = html.find(policy);
    ASSERT_NE(allowed, std::string::npos);
    html.insert(allowed + policy.size(), " script-src 'unsafe-inline';");
    const size_t end = html.rfind("</body>");
    ASSERT_NE(end, std::string::npos);
    html.replace(end, 7, kRead);
    const std::string dom = open_in_browser(*browser_, dir_.add("page.html", html).string(), "");
    const std::string mark = "data-pictures=\"";
    const size_t at = dom.find(mark);
    ASSERT_NE(at, std::string::npos) << dom.substr(0, 300);
    const json drawn = json::parse(
        decoded(dom.substr(at + mark.size(), dom.find('"', at + mark.size()) - at - mark.size())));
    ASSERT_EQ(drawn.size(), lines.size() + bars.size());
    for (const json& picture : drawn) {
      const std::string title = picture["title"];
      EXPECT_TRUE(picture["drawn"].get<bool>()) << title;
      EXPECT_TRUE(picture["wide"].get<bool>()) << title << ": something lies outside";
      if (bars.contains(title)) {
        check_bars(picture, bars[title]);
      } else {
        check_lines(picture, lines[title]);
      }
    }
  }

 private:
  static void check_bars(const json& picture, const std::vector<json>& bars) {
    std::vector<double> values;
    for (const json& bar : bars) {
      if (!bar["value"].is_null()) values.push_back(bar["value"]);
    }
    ASSERT_EQ(picture["bars"].size(), values.size());
    const double most = *std::max_element(values.begin(), values.end());
    const double longest = *std::max_element(picture["bars"].begin(), picture["bars"].end());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(picture["bars"][i].get<double>() / longest, values[i] / most, 1e-3) << i;
    }
  }
  // Points are further apart than pixels, or some would not be drawn.
  static void check_lines(const json& picture, const std::vector<json>& lines) {
    ASSERT_EQ(picture["lines"].size(), lines.size());
    const auto along = [&](const json& point, size_t k) {
      const auto value = point[k].get<double>();
      return picture["powers"][k].get<bool>() ? std::log(value) : value;
    };
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (const json& line : lines) {
      for (const json& point : line["points"]) {
        for (size_t k = 0; k < 2; ++k) {
          low[k] = std::min(low[k], along(point, k));
          high[k] = std::max(high[k], along(point, k));
        }
      }
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      const json &points = lines[i]["points"], &vertices = picture["lines"][i];
      ASSERT_EQ(vertices.size(), points.size()) << lines[i]["line"];
      for (size_t v = 0; v < points.size(); ++v) {
        for (size_t k = 0; k < 2; ++k) {
          // A pixel: a picture has 724 x 346 of them.
          EXPECT_NEAR(vertices[v][k].get<double>(), along(points[v], k),
                      (high[k] - low[k]) / (k == 0 ? 724 : 346));
        }
      }
    }
  }

  TempDir dir_;
  std::optional<std::string> browser_;
};

CellResult cell(const std::string& model, double tokens_per_s) {
  CellResult c{.model = model, .compute = "bf16", .seq_len = 512, .batch = 4, .status = "ok"};
  c.params = 128625408, c.steps = 5, c.tokens_per_s = tokens_per_s;
  c.step = {2048 / tokens_per_s, 0.001};
  for (Measured& phase : c.phases) phase = {c.step.mean / 4, 0.001};
  for (size_t i = 0; i < c.classes.size(); ++i) {
    c.classes[i] = {std::string(name_of(OpClass(i))), int64_t(i) + 1, 0.01 * double(i + 1),
                    0.004 * double(i)};
  }
  for (int i = 0; i < 12; ++i) {
    c.memory.push_back({.at_s = 0.01 * i,
                        .params = 1 << 28,
                        .grads = (1 << 24) * i,
                        .state = 1 << 29,
                        .activations = (1 << 25) * (12 - i),
                        .others = 1 << 20});
  }
  return c;
}

TEST_F(Pictures, OfSteps) {
  CellResult failed = cell("large", 1);
  failed.status = "does not fit";
  check(model_page(std::vector{cell("small", 1234.5), cell("medium", 321), failed}));
}

TEST_F(Pictures, OfKernels) {
  check(kernels_page(std::vector{cell("small", 1234.5)}));
}

TEST_F(Pictures, OfMemory) {
  check(memory_page(std::vector{cell("small", 1234.5)}));
}

TEST_F(Pictures, OfAttention) {
  std::vector<AttentionResult> results;
  for (const int64_t length : {256, 1024, 4096, 16384}) {
    AttentionResult r{.cell = {8, length, 64}};
    r.fused.status = r.naive.status = "ok";
    const double pairs = double(length) * double(length);
    r.fused.forward = {1e-10 * pairs, 0}, r.fused.backward = {3e-10 * pairs, 0};
    r.naive.forward = {1e-9 * pairs, 0}, r.naive.backward = {2e-9 * pairs, 0};
    r.naive.products_s = r.naive.softmax_s = 1e-9 * pairs;
    results.push_back(r);
  }
  check(attention_page(results));
}

TEST_F(Pictures, OfAnEstimate) {
  auto subject = parse_subject("llama3-8b");
  ASSERT_TRUE(subject.ok()) << subject.message();
  EstimateInput in{.subject = std::move(*subject)};
  in.device = Device{.name = "A100", .memory_bytes = 80e9, .peak_flops = 312e12, .memory_rate = 2.039e12};
  const auto page = estimate(in);
  ASSERT_TRUE(page.ok()) << page.message();
  check(*page);
}

TEST_F(Pictures, OfAComparison) {
  std::vector<ComparedCard> compared;
  for (const char* name : {"rtx4090", "a100", "h100"}) {
    auto card = find_card(name);
    ASSERT_TRUE(card.ok()) << card.message();
    compared.push_back({.card = std::move(*card)});
    compared.back().found.speed.tokens_per_s = 1000.0 * double(compared.size());
    compared.back().found.binds = "compute";
  }
  compared[1].missing = "needs 90 GiB of device memory";
  check(page_of(compared, {.title = "tiny"}));
}

}  // namespace
}  // namespace sluice::core
