// SPDX-License-Identifier: Apache-2.0
// What a task or a copy reads, writes and waits for, of the one that was chosen by a click or by keys.

// waits[l]: of lane l, where the waits of each action begin in `lane` and `at` (an index on that lane).
const waits = lanes.map((lane, l) => {
  const {wait_count: counts, wait_lane: on, wait_at: steps} = lane.columns, first = new Int32Array(lane.n + 1), at = new Int32Array(on.length);
  for (let i = 0; i < lane.n; ++i) first[i + 1] = first[i] + counts[i];
  const last = new Int32Array(lanes.length);
  on.forEach((other, k) => { at[k] = last[other] += steps[k]; });
  return {first, lane: on, at};
});
// Names of what a task uses: "r 12 .%0.%1", where %k is the k-th part of where the task is; r, w or a (adds to it).
function usesOf(l, i) {
  const lane = lanes[l];
  if (!runs(l)) {
    const tiers = /^load/.test(lane.name) ? ['host', 'device'] : /^store/.test(lane.name) ? ['device', 'host'] : lane.name.split('>');
    return {reads: [`${actionName(lane, i)} on the ${tiers[0]}`], writes: [`${actionName(lane, i)} on the ${tiers[1]}`]};
  }
  const parts = plan.actions.where[lane.columns.where[i]].split('.').slice(1), out = {reads: [], writes: []};
  for (const use of plan.actions.uses[lane.columns.uses[i]].split(';').filter(Boolean)) {
    const [access, what, where] = use.split(' ');
    const name = plan.actions.what[Number(what)] + (where ?? '').replace(/%(\d)/g, (_, k) => parts[Number(k)]);
    if (access !== 'w' && !out.reads.includes(name)) out.reads.push(name);
    if (access !== 'r' && !out.writes.includes(name)) out.writes.push(name);
  }
  return out;
}

let chosen = null;  // {l, i}
function chooseTask(l, i) {
  chosen = i >= 0 && i < lanes[l].n ? {l, i} : null;
  $('task').hidden = chosen === null;
  redraw();
  if (chosen === null) return;
  const lane = lanes[l], {reads, writes} = usesOf(l, i), began = lane.start[i];
  const go = (on, at) => el('button', {type: 'button', onclick: () => goTo(on, at)}, `${laneLabel(on)}: ${actionName(lanes[on], at)}`);
  const row = (name, ...content) => el('div', {}, el('dt', {}, name), el('dd', {}, ...content));
  const when = end => ` ended ${timeText(began - end)} before`;
  const rows = [row('reads', reads.join(', ') || 'nothing'), row('writes', writes.join(', ') || 'nothing')];
  const list = [], w = waits[l];
  for (let k = w.first[i]; k < w.first[i + 1]; ++k) list.push(el('div', {}, go(w.lane[k], w.at[k]), when(lanes[w.lane[k]].end[w.at[k]])));
  rows.push(row('waits for', ...(list.length ? list : ['no other lane'])));
  if (i > 0) rows.push(row('comes after', el('div', {}, go(l, i - 1), when(lane.end[i - 1]))));
  const s = stallBefore[l][i];
  if (s >= 0) rows.push(row('the lane waits', causes.filter(c => plan.stalls[c.key][s] > 0).map(c => `${timeText(plan.stalls[c.key][s])} ${c.name}`).join(', ')));
  const [title, ...rest] = describeAction(l, i);
  $('task').replaceChildren(el('p', {}, title, ` ${rest.join('; ')} `, el('button', {type: 'button', onclick: () => chooseTask(l, -1)}, 'close')), el('dl', {}, ...rows));
}
// Chooses an action and shows it, at the zoom that there is or closer.
function goTo(l, i) {
  const lane = lanes[l], width = Math.min(view.to - view.from, 40 * Math.max(1, lane.end[i] - lane.start[i]));
  zoomTo((lane.start[i] + lane.end[i] - width) / 2, (lane.start[i] + lane.end[i] + width) / 2);
  chooseTask(l, i);
}
function actionAt(l, ns) {
  const i = above(lanes[l].end, ns), slack = 2 / plotWidth * (view.to - view.from);
  return i < lanes[l].n && lanes[l].start[i] <= ns + slack ? i : -1;
}
function chooseAt(e) {
  const box = $('timeline').getBoundingClientRect(), l = Math.floor((e.clientY - box.top - lanesTop) / (kLaneHeight + kLaneGap));
  if (l >= 0 && l < lanes.length) chooseTask(l, actionAt(l, nsOf(e.clientX - box.left)));
}
// Enter chooses what the first lane does in the middle; n and p go on from there, l to the next lane, Escape ends it.
function chooseByKey(key) {
  if (key === 'Escape') chooseTask(0, -1);
  else if (chosen === null) chooseTask(0, key === 'Enter' ? Math.min(above(lanes[0].end, (view.from + view.to) / 2), lanes[0].n - 1) : -1);
  else if (key === 'n' || key === 'p') goTo(chosen.l, Math.min(Math.max(0, chosen.i + (key === 'n' ? 1 : -1)), lanes[chosen.l].n - 1));
  else if (key === 'l') {
    let l = (chosen.l + 1) % lanes.length;
    while (lanes[l].n === 0) l = (l + 1) % lanes.length;  // the one that was chosen has some
    goTo(l, Math.min(above(lanes[l].end, lanes[chosen.l].start[chosen.i]), lanes[l].n - 1));
  } else return false;
  return true;
}
function paintChosen(ctx) {
  if (chosen === null) return;
  const lane = lanes[chosen.l], x0 = Math.max(kLeft, xOf(lane.start[chosen.i])), x1 = Math.min(kLeft + plotWidth, xOf(lane.end[chosen.i]));
  if (x1 < kLeft || x0 > kLeft + plotWidth) return;
  ctx.strokeStyle = colour('--ink');
  ctx.lineWidth = 2;
  ctx.strokeRect(x0 - 1, laneTop(chosen.l) - 1, Math.max(3, x1 - x0 + 2), kLaneHeight + 2);
}
