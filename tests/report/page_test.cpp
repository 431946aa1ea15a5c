// SPDX-License-Identifier: Apache-2.0
// The page, opened in a real browser: it draws, zooms, shows the numbers of the JSON, and asks no other
// machine for anything.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "report/browser.h"
#include "report/small_plan.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using nlohmann::json;

bool has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// The value of an attribute of the element with this id.
std::string attribute(const std::string& dom, const std::string& id, const std::string& name) {
  const size_t element = dom.find("id=\"" + id + "\"");
  if (element == std::string::npos) return "no element " + id;
  const size_t begin = dom.rfind('<', element), end = dom.find('>', element);
  const size_t at = dom.find(" " + name + "=\"", begin);
  if (at == std::string::npos || at > end) return "no attribute " + name;
  const size_t value = at + name.size() + 3;
  return dom.substr(value, dom.find('"', value) - value);
}
double number(const std::string& dom, const std::string& id, const std::string& name) {
  const std::string text = attribute(dom, id, name);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  EXPECT_TRUE(end != text.c_str() && *end == '\0') << id << "." << name << ": " << text;
  return value;
}

class Page : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = find_browser();
    if (!browser_) GTEST_SKIP() << "no browser on this machine; apt-get install chromium";
    plan_ = small_plan(0.2);
    plan_.context.tokens_per_s = 1234.5;
    plan_.plan.speedup_with_more[kDevice] = 1.25;
    plan_.context.what_ifs = {{"+1 KiB device", 1.031}};
    plan_.context.facts.emplace_back("sluice", "1.2.3, commit abc");
    json_ = plan_.json();
    html_ = to_html(json_);
  }

  // The document after the page's scripts, and then `script`, have run.
  std::string open(const std::string& html, const std::string& script = "",
                   const std::string& fragment = "") {
    const std::string page =
        script.empty() ? html : replaced(html, "</body>", "<script>" + script + "</script></body>");
    return open_in_browser(*browser_, dir_.add("page.html", page).string(), fragment);
  }

  TempDir dir_;
  std::optional<std::string> browser_;
  SmallPlan plan_;
  std::string json_, html_;
};

TEST_F(Page, ShowsTheNumbersOfTheJson) {
  const json j = json::parse(json_);
  const std::string dom = open(html_);
  ASSERT_TRUE(has(dom, "data-ready=\"yes\"")) << dom.substr(0, 500);
  EXPECT_EQ(number(dom, "step", "data-value"), j["step_ns"].get<double>());
  EXPECT_EQ(number(dom, "speed", "data-value"), 1234.5);
  EXPECT_EQ(number(dom, "gap", "data-value"),
            j["step_ns"].get<double>() / j["lower_bound_ns"].get<double>() - 1);
  EXPECT_EQ(number(dom, "device-memory", "data-value"), j["device"]["peak_bytes"].get<double>() + 100);
  EXPECT_EQ(number(dom, "device-memory", "data-reserved"), j["device"]["arena_bytes"].get<double>() + 100);
  const std::string shown = dom.substr(0, dom.find("id=\"plan\""));  // without the JSON itself
  EXPECT_TRUE(has(shown, j["binds"].get<std::string>()));
  EXPECT_TRUE(has(shown, "tiny &lt;script&gt;")) << "words of a plan are words on the page";
  EXPECT_TRUE(has(shown, "+1 KiB device"));
  EXPECT_TRUE(has(shown, "A GiB more of device memory would make the step about 25.0 % faster."));
  const std::string cap = format_bytes(plan_.context.caps[kDevice]);
  EXPECT_TRUE(has(shown, "<h1 id=\"title\">tiny, 1 K parameters within " + cap + " of device memory</h1>"))
      << cap;
  EXPECT_TRUE(has(shown, "a test · 64 tokens · sluice 1.2.3, commit abc</p>"));
  ASSERT_FALSE(j["names"].empty());
  for (const json& name : j["names"]) {
    EXPECT_TRUE(has(shown, "<dt>" + name[0].get<std::string>() + "</dt><dd>")) << name;
  }
  EXPECT_TRUE(has(shown, j["longest_stalls"][0]["before"].get<std::string>()));
  for (const json& role : j["saved"]) {
    EXPECT_TRUE(has(shown, "<td>" + role["role"].get<std::string>() + "</td>")) << role;
  }
  EXPECT_TRUE(has(shown, format_bytes(j["saved"][0]["bytes"].get<int64_t>())));
}

// Every colour that the plan calls for is on the canvas: phases and kinds in the lanes, kinds in the memory,
// states in the map.
TEST_F(Page, DrawsEveryPart) {
  const std::string dom = open(html_, R"(
    const seen = id => {
      const c = document.getElementById(id), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      const out = new Set();
      for (let i = 0; i < d.length; i += 4) out.add('#' + [0, 1, 2].map(k => d[i + k].toString(16).padStart(2, '0')).join(''));
      return out;
    };
    for (const id of ['timeline', 'overview', 'map']) {
      const colours = seen(id), names = [];
      for (const name of ['forward', 'backward', 'again', 'update', 'param', 'grad', 'activation', 'device', 'host', 'cap'])
        if (colours.has(css('--' + name))) names.push(name);
      document.getElementById(id).dataset.drawn = ' ' + names.join(' ') + ' ';
    })");
  const std::string timeline = attribute(dom, "timeline", "data-drawn");
  for (const char* name :
       {" forward ", " backward ", " again ", " update ", " param ", " grad ", " activation ", " cap "}) {
    EXPECT_TRUE(has(timeline, name)) << name << "in" << timeline;
  }
  EXPECT_TRUE(has(attribute(dom, "overview", "data-drawn"), " backward "));
  const std::string map = attribute(dom, "map", "data-drawn");
  for (const char* name : {" device ", " host ", " again "})
    EXPECT_TRUE(has(map, name)) << name << "in" << map;
}

TEST_F(Page, ZoomsByFragmentWheelAndKeys) {
  std::string dom = open(html_);
  EXPECT_EQ(number(dom, "range", "data-from"), 0);
  EXPECT_EQ(number(dom, "range", "data-to"), 1);

  dom = open(html_, "", "#zoom=0.2,0.4");
  EXPECT_NEAR(number(dom, "range", "data-from"), 0.2, 1e-6);
  EXPECT_NEAR(number(dom, "range", "data-to"), 0.4, 1e-6);

  const std::string wheel = R"(
    const box = document.getElementById('timeline').getBoundingClientRect();
    document.getElementById('timeline').dispatchEvent(new WheelEvent('wheel',
      {deltaY: -400, clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true, cancelable: true}));)";
  dom = open(html_, wheel);
  const double from = number(dom, "range", "data-from"), to = number(dom, "range", "data-to");
  EXPECT_NEAR(to - from, std::exp(-400 * 0.0018), 1e-6);
  EXPECT_GT(from, 0.1);
  EXPECT_LT(to, 0.9);

  dom = open(html_, wheel + R"(
    document.getElementById('timeline').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));)");
  EXPECT_NEAR(number(dom, "range", "data-from"), from + 0.2 * (to - from), 1e-6);
}

// Rounds that interleave are said to, and drawn in two rows.
TEST_F(Page, ExplainsRoundsThatInterleave) {
  json j = json::parse(json_);
  const double step = j["step_ns"];
  j["interleaved"] = true;
  j["passes"] = json::array();
  const auto pass = [&](const char* phase, int round, int row, double from, double to) {
    j["passes"].push_back({{"phase", phase},
                           {"round", round},
                           {"row", row},
                           {"start_ns", from * step},
                           {"end_ns", to * step},
                           {"busy_ns", 1}});
  };
  pass("forward", 0, 0, 0, 0.3), pass("backward", 0, 0, 0.3, 0.7), pass("forward", 1, 1, 0.4, 0.6);
  const std::string script = R"(
    const at = (share, row) => {
      const d = document.getElementById('timeline').getContext('2d').getImageData(kLeft + share * plotWidth, row * 20 + 14, 1, 1).data;
      return '#' + [0, 1, 2].map(k => d[k].toString(16).padStart(2, '0')).join('');
    };
    const names = {[css('--forward')]: 'forward', [css('--backward')]: 'backward'};
    document.body.dataset.rows = [at(0.25, 0), at(0.5, 0), at(0.5, 1), at(0.8, 0)].map(c => names[c]).join(' ');)";
  const std::string dom = open(to_html(j.dump()), script);
  EXPECT_TRUE(has(dom, "data-rows=\"forward backward forward \"")) << dom.substr(dom.find("data-rows"), 60);
  EXPECT_TRUE(has(dom, "Rounds interleave: "));
  EXPECT_FALSE(has(dom, "id=\"interleaved\" hidden"));
}

// What the button saves is an SVG file with what is on the screen, zoom and all.
TEST_F(Page, SavesTheViewAsSvg) {
  const std::string dom = open(html_, R"(
    let saved = null;
    URL.createObjectURL = blob => { saved = blob; return ''; };
    HTMLAnchorElement.prototype.click = function() { document.body.dataset.file = this.download; };
    document.getElementById('save-svg').click();
    const text = viewAsSvg(), svg = new DOMParser().parseFromString(text, 'image/svg+xml');
    const words = [...svg.querySelectorAll('text')].map(t => t.textContent);
    Object.assign(document.body.dataset, {
      saved: saved.type + ' ' + (saved.size === new Blob([text]).size),
      root: svg.documentElement.nodeName, errors: svg.querySelectorAll('parsererror').length,
      words: ['compute', 'load', 'store', 'rounds', 'weights', 'forward', document.getElementById('title').textContent]
        .filter(w => words.includes(w)).length,
      range: words.some(w => w === document.getElementById('range').textContent),
      colours: ['forward', 'backward', 'param', 'again', 'activation', 'card'].filter(n => text.includes(css('--' + n))).length,
      undefined: /NaN|undefined/.test(text), size: text.length < 1e6});)",
                               "#zoom=0.2,0.4");
  for (const char* part : {"data-saved=\"image/svg+xml true\"", "data-file=\"plan.svg\"", "data-root=\"svg\"",
                           "data-errors=\"0\"", "data-words=\"7\"", "data-range=\"true\"",
                           "data-colours=\"6\"", "data-undefined=\"false\"", "data-size=\"true\""}) {
    EXPECT_TRUE(has(dom, part)) << part << " in " << dom.substr(dom.find("<body"), 400);
  }
}

// On a telephone, a tablet and a desk, in both themes: nothing scrolls sideways, no two texts of a canvas
// overlap, none is cut off, and none has the colour of what it stands on.
TEST_F(Page, FitsEveryScreen) {
  const std::string script = R"(
    const boxes = [], real = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function(text, x, y) {
      const w = this.measureText(text).width, h = parseInt(this.font, 10) - 2;
      const left = this.textAlign === 'right' ? x - w : this.textAlign === 'center' ? x - w / 2 : x;
      boxes.push({text: String(text), canvas: this.canvas.id, left, right: left + w, top: y - h / 2, bottom: y + h / 2,
                  limit: parseFloat(this.canvas.style.width)});
      real.apply(this, arguments);
    };
    const said = [];
    for (const theme of ['light', 'dark']) {
      setTheme(theme);
      boxes.length = 0;
      drawTimeline();
      drawMap();
      for (const [i, a] of boxes.entries()) {
        if (a.left < -0.5 || a.right > a.limit + 0.5) said.push(`${theme}: ${a.text} is cut off in ${a.canvas}`);
        for (const b of boxes.slice(0, i)) {
          if (a.canvas === b.canvas && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
            said.push(`${theme}: ${a.text} over ${b.text} in ${a.canvas}`);
        }
      }
      const root = document.documentElement;
      if (root.scrollWidth > root.clientWidth) said.push(`${theme}: ${root.scrollWidth} in ${root.clientWidth}`);
      for (const id of ['title', 'subtitle', 'step', 'interleaved', 'names', 'bound']) {
        const node = document.getElementById(id);
        if (node.scrollWidth > node.clientWidth + 1) said.push(`${theme}: ${id} is cut off`);
        let ground = node;
        while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
        if (getComputedStyle(node).color === getComputedStyle(ground).backgroundColor) said.push(`${theme}: ${id} is not seen`);
      }
      if (boxes.length < 12) said.push(`only ${boxes.length} texts`);
    }
    parent.postMessage(`${window.innerWidth}: ${said.join('; ') || 'all fits'}`, '*');)";
  const auto path =
      dir_.add("page.html", replaced(html_, "</body>", "<script>" + script + "</script></body>"));
  for (const int width : {360, 768, 1440}) {
    EXPECT_EQ(say_in_frame(*browser_, path.string(), width), std::to_string(width) + ": all fits");
  }
}

TEST_F(Page, SaysWhatATaskReadsWritesAndWaitsFor) {
  // The first run that waits for another lane.
  const auto waiting = std::ranges::find_if(
      plan_.plan.actions, [](const Action& a) { return a.kind == ActionKind::Run && a.wait_count > 0; });
  ASSERT_NE(waiting, plan_.plan.actions.end());
  const auto place = std::count_if(plan_.plan.actions.begin(), waiting,
                                   [&](const Action& a) { return a.lane == waiting->lane; });
  const std::string script = fmt::format(
      R"(const l = {}, i = {}, box = $('timeline').getBoundingClientRect();
         zoomTo(lanes[l].start[i] - lanes[l].columns.ns[i], lanes[l].end[i] + lanes[l].columns.ns[i]);
         const at = {{clientX: box.left + xOf((lanes[l].start[i] + lanes[l].end[i]) / 2), clientY: box.top + laneTop(l) + 2, pointerId: 1}};
         for (const name of ['pointerdown', 'pointerup']) $('timeline').dispatchEvent(new PointerEvent(name, at));)",
      waiting->lane.index(), place);
  const std::string dom = open(html_, script);
  const size_t begin = dom.find("id=\"task\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string said = dom.substr(begin, dom.find("</dl>", begin) - begin);
  const Task& task = plan_.program.task(waiting->task);
  EXPECT_TRUE(has(said, task.name)) << said;
  for (const Use& use : task.uses) EXPECT_TRUE(has(said, plan_.program.object(use.object).name)) << said;
  for (const uint32_t other : plan_.plan.waits_of(*waiting)) {
    const Action& a = plan_.plan.actions[other];
    const std::string& name =
        a.kind == ActionKind::Run ? plan_.program.task(a.task).name : plan_.program.object(a.object).name;
    EXPECT_TRUE(has(said, ": " + name)) << said;
  }
}

// A sum over processes is a task, and no copy of an object.
TEST_F(Page, SaysWhatAnExchangeReadsAndWrites) {
  const SmallPlan p = small_plan_of_processes();
  const auto sum = std::ranges::find_if(
      p.plan.actions, [&](const Action& a) { return p.plan.lanes[a.lane].kind() == LaneKind::Network; });
  ASSERT_NE(sum, p.plan.actions.end());
  const std::string dom =
      open(to_html(p.json()), fmt::format("chooseTask({}, 0); $('tip').append(...describeAction({}, 0));",
                                          sum->lane.index(), sum->lane.index()));
  const size_t begin = dom.find("id=\"task\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string said = dom.substr(begin, dom.find("</dl>", begin) - begin);
  for (const Use& use : p.program.task(sum->task).uses)
    EXPECT_TRUE(has(said, p.program.object(use.object).name)) << said;
  EXPECT_FALSE(has(said, "undefined")) << said;
  EXPECT_FALSE(has(dom, "network of ")) << "a copy's words";
  EXPECT_TRUE(has(dom, " exchanges with other processes"));
}

TEST_F(Page, ChangesItsTheme) {
  EXPECT_TRUE(has(open(html_, "document.getElementById('theme').click()"), "data-theme=\"dark\""));
}

TEST_F(Page, AsksNobody) {
  for (const char* way :
       {"http:", "https:", "//cdn", "src=", "url(", "@import", "fetch(", "XMLHttpRequest", "import("}) {
    EXPECT_FALSE(has(html_, way)) << way;
  }
  const std::string resources =
      "document.body.dataset.resources = performance.getEntriesByType('resource').length";
  EXPECT_TRUE(has(open(html_, resources), "data-resources=\"0\""));

  // Even a page that tried could not; and the test would see it.
  Listener listener;
  const std::string address = "'http://127.0.0.1:" + std::to_string(listener.port()) + "/'";
  const std::string attempt = "new Image().src = " + address + "; fetch(" + address + ").catch(() => {});";
  EXPECT_TRUE(has(open(html_, attempt), "data-ready=\"yes\""));
  EXPECT_EQ(listener.connections(), 0);
  open(replaced(html_, "default-src 'none'; ", ""), attempt);
  EXPECT_GT(listener.connections(), 0);
}

}  // namespace
}  // namespace sluice::core
