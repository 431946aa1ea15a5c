// SPDX-License-Identifier: Apache-2.0
// What the timeline says about the place under the pointer.

function showTip(e, rows) {
  const tip = $('tip');
  tip.replaceChildren(...rows.map(row => (row instanceof Node ? row : el('div', {}, row))));
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(e.clientX + 14, window.innerWidth - box.width - 8)) + 'px';
  tip.style.top = (e.clientY + 18 + box.height > window.innerHeight ? e.clientY - box.height - 12 : e.clientY + 18) + 'px';
  tip.style.visibility = 'visible';
}
function hideTip() { $('tip').style.visibility = 'hidden'; }

function describeAction(l, i) {
  const lane = lanes[l], ns = lane.columns.ns[i], bytes = actionBytes(lane, i);
  const kind = runs(l) ? phaseNames[plan.actions.phases[lane.columns.kind[i]]] : `${lane.name} of ${kindWords(kinds[lane.columns.kind[i]])}`;
  return [el('b', {}, actionName(lane, i)), kind, `${timeText(ns)} from ${timeText(lane.start[i])}`,
          runs(l) ? `operands ${bytesText(bytes)}` : `${bytesText(bytes)}, ${(bytes / Math.max(1, ns)).toFixed(1)} GB/s`];
}
function describeStall(on, i) {
  const s = stallBefore[on][i], rows = [el('b', {}, `stall of ${timeText(lanes[on].columns.gap[i])}`)];
  for (const c of causes) {
    if (plan.stalls[c.key][s] > 0) rows.push(el('div', {}, swatch(c.colour), `${c.name} ${timeText(plan.stalls[c.key][s])}`));
  }
  rows.push('before ' + actionName(lanes[on], i));
  const l = plan.stalls.lane[s];
  if (l >= 0) rows.push(`last waited for: ${lanes[l].name} ${actionName(lanes[l], plan.stalls.last[s])}`);
  return rows;
}
// What lane l does at a time; near misses of a few pixels count.
function describeLane(l, ns) {
  const lane = lanes[l], slack = 2 / plotWidth * (view.to - view.from);
  let i = above(lane.end, ns);
  if (i < lane.n && lane.start[i] > ns) {
    if (stallBefore[l][i] >= 0 && ns >= lane.start[i] - lane.columns.gap[i]) return describeStall(l, i);
    if (lane.start[i] - ns > slack) i = i > 0 && ns - lane.end[i - 1] < slack ? i - 1 : lane.n;
  }
  return i < lane.n ? describeAction(l, i) : [`${lane.name}: nothing at ${timeText(ns)}`];
}
function describeMemory(tier, ns) {
  const series = memory[tier], i = above(series.ns, ns) - 1;
  if (i < 0) return [`${tier}: empty at ${timeText(ns)}`];
  const rows = [el('b', {}, `${tier}: ${bytesText(series.total[i])} in use`), `at ${timeText(ns)}`];
  for (const {kind, bytes} of [...series.kinds].reverse()) {
    if (bytes[i] > 0) rows.push(el('div', {}, swatch('--' + kind), `${kindWords(kind)} ${bytesText(bytes[i])}`));
  }
  return rows;
}
function describePass(e, ns, row) {
  const p = plan.passes.find(pass => pass.row === row && pass.start_ns <= ns && ns < pass.end_ns);
  if (!p) return hideTip();
  showTip(e, [el('b', {}, p.phase === 'update' ? 'update' : `${p.phase} pass of round ${p.round}`),
              `${timeText(p.end_ns - p.start_ns)} from ${timeText(p.start_ns)}`,
              `${percent(p.busy_ns / Math.max(1, p.end_ns - p.start_ns))} of that in its own tasks`]);
}
function hover(e) {
  const box = $('timeline').getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  if (x < kLeft || x > kLeft + plotWidth) { crosshair = null; hideTip(); redraw(); return; }
  crosshair = x;
  redraw();
  const ns = nsOf(x), l = Math.floor((y - lanesTop) / (kLaneHeight + kLaneGap));
  if (y < lanesTop) describePass(e, ns, Math.floor(y / (kPassHeight + kPassGap)));
  else if (l < lanes.length) showTip(e, describeLane(l, ns));
  else {
    const tier = tiers.findLast(t => y >= memoryTop[t]);
    if (tier) showTip(e, describeMemory(tier, ns)); else hideTip();
  }
}
