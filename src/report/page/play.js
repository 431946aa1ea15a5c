// SPDX-License-Identifier: Apache-2.0
// The step played in time: a moment that moves over the timeline, and what happens then.

const playing = {ns: 0, last: 0, frame: 0, shown: false};

function placeNow() {
  const x = xOf(playing.ns);
  $('now').hidden = !playing.shown || x < kLeft || x > kLeft + plotWidth;
  $('now').style.left = `${x - 1}px`;
}
// What lane l does at a time: its action, or why there is none.
function doingAt(l, ns) {
  const lane = lanes[l], i = above(lane.end, ns);
  if (i < lane.n && lane.start[i] <= ns) return actionName(lane, i);
  const s = i < lane.n ? stallBefore[l][i] : -1;
  if (!(s >= 0) || ns < lane.start[i] - lane.columns.gap[i]) return 'nothing';
  let end = lane.start[i] - lane.columns.gap[i];
  return (causes.find(c => ns < (end += plan.stalls[c.key][s])) ?? causes[causes.length - 1]).name;
}
function memoryAt(tier, ns) {
  const series = memory[tier], i = above(series.ns, ns) - 1;
  return plan[tier].overhead_bytes + (i < 0 ? 0 : series.total[i]);
}
function showHappening() {
  const entry = (name, words, share) => {
    const node = el('div', {}, el('span', {}, name + ' '), el('b', {}, words));
    if (share !== undefined) node.append(el('div', {class: 'meter'}, el('i', {style: `width:${Math.min(100, 100 * share)}%`})));
    return node;
  };
  $('happening').hidden = false;
  $('happening').replaceChildren(
    ...lanes.map((_, l) => entry(laneLabel(l), doingAt(l, playing.ns))),
    ...tiers.map(tier => {
      const t = plan[tier], used = memoryAt(tier, playing.ns);
      return entry(tier, `${bytesText(used)} of ${capText(t.cap_bytes)}`, used / (t.cap_bytes ?? (t.arena_bytes + t.overhead_bytes)));
    }));
}
function moveTo(ns) {
  playing.ns = Math.min(stepNs, Math.max(0, ns));
  playing.shown = true;
  $('moment').value = String(Math.round(1000 * playing.ns / stepNs));
  $('moment-text').textContent = timeText(playing.ns);
  // Zoomed in, the view goes along.
  const width = view.to - view.from;
  if (playing.ns < view.from || playing.ns > view.to) zoomTo(playing.ns - 0.1 * width, playing.ns + 0.9 * width);
  placeNow();
  showHappening();
}
function pausePlay() {
  cancelAnimationFrame(playing.frame);
  playing.frame = 0;
  $('play').textContent = 'play';
  $('play').setAttribute('aria-pressed', 'false');
}
function advance(time) {
  const pace = Number($('pace').value) || stepNs / 1e9;  // seconds that the whole step is shown in
  moveTo(playing.ns + (time - playing.last) / 1000 / pace * stepNs);
  playing.last = time;
  if (playing.ns >= stepNs) pausePlay();
  else playing.frame = requestAnimationFrame(advance);
}
function togglePlay() {
  if (playing.frame !== 0) return pausePlay();
  if (playing.ns >= stepNs) playing.ns = 0;
  playing.last = performance.now();
  playing.frame = requestAnimationFrame(advance);
  $('play').textContent = 'pause';
  $('play').setAttribute('aria-pressed', 'true');
}
function listenToPlay() {
  $('play').addEventListener('click', togglePlay);
  $('moment').addEventListener('input', () => { pausePlay(); moveTo(Number($('moment').value) / 1000 * stepNs); });
  $('colours').addEventListener('change', () => { byChunk = $('colours').value === 'chunk'; fillLaneLegend(); redraw(); });
}
