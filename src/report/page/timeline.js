// SPDX-License-Identifier: Apache-2.0
// Lanes and memory over time, and moving about in them.

// ---- drawing -----------------------------------------------------------------------------------------------------

// A canvas of `height` CSS pixels as wide as its place, cleared; width in CSS pixels.
function prepared(canvas, height, width = canvas.parentElement.clientWidth - padding(canvas.parentElement)) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const ctx = canvas.getContext('2d');
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = '12px system-ui, "DejaVu Sans", sans-serif';
  ctx.textBaseline = 'middle';
  return {ctx, width};
}
function padding(node) {
  const style = getComputedStyle(node);
  return parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
}
// First index whose value is above x.
function above(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (values[mid] > x) high = mid; else low = mid + 1;
  }
  return low;
}

const kLeft = 72, kRight = 8, kPassHeight = 17, kPassGap = 3, kLaneHeight = 34, kLaneGap = 6;
const memoryHeight = tier => tier === 'host' ? 110 : tiers.length > 2 ? 90 : 150;
const view = {from: 0, to: stepNs};
let plotWidth = 0;
const xOf = ns => kLeft + (ns - view.from) / (view.to - view.from) * plotWidth;
const nsOf = x => view.from + (x - kLeft) / plotWidth * (view.to - view.from);

// Items of a lane: what is wide enough becomes a block; the rest adds to its pixel columns, which are then drawn as
// shares of the lane's height.
class LanePainter {
  constructor(ctx, x, width, y, height, from, to) {
    Object.assign(this, {ctx, x, width: Math.ceil(width), y, height, from, scale: width / (to - from)});
    this.thin = new Map();
  }
  item(start, end, colourName, label) {
    const x0 = Math.max(0, (start - this.from) * this.scale), x1 = Math.min(this.width, (end - this.from) * this.scale);
    if (x1 <= x0) return;
    if (x1 - x0 < 2) {
      let columns = this.thin.get(colourName);
      if (!columns) this.thin.set(colourName, columns = new Float32Array(this.width + 2));
      for (let p = Math.floor(x0); p < x1; ++p) columns[p] += Math.min(x1, p + 1) - Math.max(x0, p);
      return;
    }
    const {ctx} = this;
    ctx.fillStyle = colour(colourName);
    ctx.fillRect(this.x + x0, this.y, x1 - x0 > 5 ? x1 - x0 - 0.7 : x1 - x0, this.height);
    if (label && x1 - x0 > 40) {
      const text = label(), room = x1 - x0 - 10;
      if (ctx.measureText(text).width < room) {
        ctx.fillStyle = textOn(colour(colourName));
        ctx.fillText(text, this.x + x0 + 5, this.y + this.height / 2 + 0.5);
      }
    }
  }
  finish() {
    const level = new Float32Array(this.width + 2);
    for (const [colourName, columns] of this.thin) {
      this.ctx.fillStyle = colour(colourName);
      for (let p = 0; p < this.width; ++p) {
        if (columns[p] === 0) continue;
        const h = columns[p] * this.height;
        this.ctx.fillRect(this.x + p, this.y + this.height - level[p] - h, 1, h);
        level[p] += h;
      }
    }
  }
}
function textOn(hex) {
  const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  return colour(0.299 * r + 0.587 * g + 0.114 * b < 130 ? '--on-dark' : '--on-light');
}
// Chunks in colours of their own: a chunk has one through forward, backward and from device to device.
const kChunkColours = ['--forward', '--again', '--update', '--activation', '--grad', '--opt_state', '--param', '--act_grad'];
let byChunk = false;
function colourOfAction(l, i) {
  if (!byChunk) return colourOfKind(l, i);
  const at = /\.r(\d+)c(\d+)/.exec(actionName(lanes[l], i));
  return at ? kChunkColours[Number(at[2]) % kChunkColours.length] : '--slowed';
}
const colourOfKind = (l, i) => '--' + (runs(l) ? plan.actions.phases[lanes[l].columns.kind[i]] : kinds[lanes[l].columns.kind[i]]);

function paintLane(ctx, l, x, width, y, height, from, to, labels) {
  const lane = lanes[l];
  ctx.fillStyle = colour('--track');
  ctx.fillRect(x, y, width, height);
  const painter = new LanePainter(ctx, x, width, y, height, from, to);
  for (let i = above(lane.end, from); i < lane.n && (lane.start[i] < to || stallBefore[l][i] >= 0); ++i) {
    painter.item(lane.start[i], lane.end[i], colourOfAction(l, i), labels && (() => actionName(lane, i)));
    if (!(stallBefore[l][i] >= 0)) continue;
    let t = lane.start[i] - lane.columns.gap[i];
    if (t > to) break;
    for (const c of causes) {
      const ns = plan.stalls[c.key][stallBefore[l][i]];
      if (ns > 0) painter.item(t, t + ns, c.colour);
      t += ns;
    }
  }
  painter.finish();
}

function niceStep(range, wanted) {
  const raw = range / wanted, power = 10 ** Math.floor(Math.log10(raw));
  return power * ([1, 2, 5].find(m => m * power >= raw) || 10);
}

function paintMemory(ctx, tier, y, height) {
  const series = memory[tier], t = plan[tier];
  const most = Math.max(t.cap_bytes ?? 0, t.arena_bytes + t.overhead_bytes, 1) * 1.04;
  const h = bytes => bytes / most * height;
  ctx.fillStyle = colour('--track');
  ctx.fillRect(kLeft, y, plotWidth, height);
  ctx.fillStyle = colour('--overhead');
  ctx.fillRect(kLeft, y + height - h(t.overhead_bytes), plotWidth, h(t.overhead_bytes));
  const base = h(t.overhead_bytes);
  // Per pixel column the fullest moment in it.
  let i = Math.max(0, above(series.ns, view.from) - 1);
  for (let p = 0; p < plotWidth; ++p) {
    const end = nsOf(kLeft + p + 1);
    let best = i;
    while (i + 1 < series.ns.length && series.ns[i + 1] <= end) {
      ++i;
      if (series.total[i] > series.total[best]) best = i;
    }
    if (series.ns.length === 0 || series.ns[best] > end) continue;
    let level = base;
    for (const {kind, bytes} of series.kinds) {
      if (bytes[best] <= 0) continue;
      const part = h(bytes[best]);
      ctx.fillStyle = colour('--' + kind);
      ctx.fillRect(kLeft + p, y + height - level - part, Math.min(1.5, plotWidth - p), part);
      level += part;
    }
  }
  const rule = (bytes, name, dash) => {
    const at = Math.round(y + height - h(bytes)) + 0.5;
    ctx.strokeStyle = colour(name);
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(kLeft, at);
    ctx.lineTo(kLeft + plotWidth, at);
    ctx.stroke();
    ctx.setLineDash([]);
  };
  rule(t.arena_bytes + t.overhead_bytes, '--muted', [2, 4]);
  if (t.cap_bytes !== null) rule(t.cap_bytes, '--cap', [6, 4]);
  ctx.textAlign = 'right';
  ctx.fillStyle = colour('--muted');
  for (let bytes = 0, step = niceBytes(most / (height / 32)); bytes <= most; bytes += step) {
    const at = Math.round(y + height - h(bytes)) + 0.5;
    ctx.globalAlpha = 0.35;
    ctx.strokeStyle = colour('--card');
    ctx.beginPath();
    ctx.moveTo(kLeft, at);
    ctx.lineTo(kLeft + plotWidth, at);
    ctx.stroke();
    ctx.globalAlpha = 1;
    ctx.fillText(bytes === 0 ? '0' : bytesText(bytes).replace(/\.0+ /, ' '), kLeft - 8, Math.min(at, y + height - 4));
  }
  ctx.textAlign = 'left';
  ctx.fillText(memoryWords(tier), 0, y - 9);
}
function memoryWords(tier) {
  const t = plan[tier], used = bytesText(t.peak_bytes + t.overhead_bytes);
  if (t.cap_bytes === null) return `${tier}: at most ${used} used`;
  return `${tier}: ${kLeft + plotWidth < 320 ? '' : 'at most '}${used} used of ${bytesText(t.cap_bytes)}`;
}
// A round number of binary units that is no less.
function niceBytes(bytes) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return unit * niceStep(bytes / unit, 1);
}

// The passes of the rounds, each a bar from its first task to its last. Where rounds interleave there are two rows.
const passRows = Math.max(0, ...plan.passes.map(p => p.row + 1));
const passName = p => (p.phase === 'update' ? 'update' : `${p.phase} ${p.round}`);
function paintPasses(ctx) {
  ctx.font = '11px system-ui, "DejaVu Sans", sans-serif';
  for (const p of plan.passes) {
    const from = Math.max(kLeft, xOf(p.start_ns)), to = Math.min(kLeft + plotWidth, xOf(p.end_ns));
    if (to <= from) continue;
    const y = p.row * (kPassHeight + kPassGap);
    ctx.fillStyle = colour('--' + p.phase);
    ctx.fillRect(from, y, Math.max(0.5, to - from - 1), kPassHeight);
    const name = [passName(p), String(p.round)].find(text => ctx.measureText(text).width + 8 < to - from);
    if (!name || p.round < 0 && name !== 'update') continue;
    ctx.fillStyle = textOn(colour('--' + p.phase));
    ctx.fillText(name, from + 4, y + kPassHeight / 2 + 0.5);
  }
  ctx.font = '12px system-ui, "DejaVu Sans", sans-serif';
  if (passRows === 0) return;
  ctx.textAlign = 'right';
  ctx.fillStyle = colour('--ink');
  ctx.fillText('rounds', kLeft - 8, (passRows * (kPassHeight + kPassGap) - kPassGap) / 2);
  ctx.textAlign = 'left';
}

const lanesTop = passRows * (kPassHeight + kPassGap) + (passRows > 0 ? 5 : 0);
const laneTop = l => lanesTop + l * (kLaneHeight + kLaneGap);
const memoryTop = {};
let below = laneTop(lanes.length) + 42;
for (const tier of tiers) {
  memoryTop[tier] = below;
  below += memoryHeight(tier) + 26;
}
const kTimelineHeight = memoryTop.host + memoryHeight('host') + 6;

// Short enough to stand beside its lane: copies from device to device are "0 to 1".
const laneLabel = l => lanes[l].name.includes('>') ?
  lanes[l].name.split('>').map(device => device.replace('device', '') || '0').join(' to ') : lanes[l].name;

let crosshair = null;
function drawTimeline() {
  const {ctx, width} = prepared($('timeline'), kTimelineHeight);
  plotWidth = width - kLeft - kRight;
  paintTimeline(ctx);
  if (crosshair !== null) {
    ctx.fillStyle = colour('--ink');
    ctx.fillRect(Math.round(crosshair), 0, 1, kTimelineHeight);
  }
  paintChosen(ctx);
  placeNow();
}
function paintTimeline(ctx) {
  paintPasses(ctx);
  for (let l = 0; l < lanes.length; ++l) {
    paintLane(ctx, l, kLeft, plotWidth, laneTop(l), kLaneHeight, view.from, view.to, true);
    ctx.textAlign = 'right';
    ctx.fillStyle = colour('--ink');
    ctx.fillText(laneLabel(l), kLeft - 8, laneTop(l) + kLaneHeight / 2);
    ctx.textAlign = 'left';
  }
  drawAxis(ctx, laneTop(lanes.length) + 6);
  for (const tier of tiers) paintMemory(ctx, tier, memoryTop[tier], memoryHeight(tier));
}
function drawAxis(ctx, y) {
  const step = niceStep(view.to - view.from, Math.max(2, plotWidth / 100));
  const unit = view.to >= 1e9 && step >= 1e6 ? [1e9, 's'] : step >= 1e5 ? [1e6, 'ms'] : [1e3, 'µs'];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  ctx.fillStyle = colour('--muted');
  ctx.textAlign = 'center';
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    ctx.fillRect(Math.round(xOf(t)), y - 6, 1, 4);
    const text = (t / unit[0]).toFixed(decimals) + ' ' + unit[1], half = ctx.measureText(text).width / 2;
    ctx.fillText(text, Math.min(Math.max(xOf(t), kLeft + half), kLeft + plotWidth + kRight - half), y + 6);
  }
  ctx.textAlign = 'left';
}
function drawOverview() {
  const {ctx, width} = prepared($('overview'), 34);
  const w = width - kLeft - kRight;
  for (let l = 0; l < 3; ++l) paintLane(ctx, l, kLeft, w, l * 11 + 1, 9, 0, stepNs, false);
  const x0 = kLeft + view.from / stepNs * w, x1 = kLeft + view.to / stepNs * w;
  ctx.globalAlpha = 0.6;
  ctx.fillStyle = colour('--card');
  ctx.fillRect(kLeft, 0, x0 - kLeft, 34);
  ctx.fillRect(x1, 0, kLeft + w - x1, 34);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colour('--accent');
  ctx.lineWidth = 1.5;
  ctx.strokeRect(x0 + 0.5, 0.75, Math.max(2, x1 - x0 - 1), 32.5);
  ctx.textAlign = 'right';
  ctx.fillStyle = colour('--muted');
  ctx.fillText('all', kLeft - 8, 17);
}

// ---- moving about ------------------------------------------------------------------------------------------------

let frame = 0;
function redraw() {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawTimeline();
    drawOverview();
  });
}
const kNarrowest = Math.min(stepNs, 2e3);  // ns
function zoomTo(from, to) {
  const width = Math.min(stepNs, Math.max(kNarrowest, to - from));
  view.from = Math.min(Math.max(0, (from + to - width) / 2), stepNs - width);
  view.to = view.from + width;
  const all = width >= stepNs * 0.9999;
  const range = $('range');
  range.textContent = all ? `all ${timeText(stepNs)}` : `${timeText(view.to - view.from)} from ${timeText(view.from)}`;
  range.dataset.from = view.from / stepNs;
  range.dataset.to = view.to / stepNs;
  const fragment = all ? '' : `#zoom=${(view.from / stepNs).toFixed(6)},${(view.to / stepNs).toFixed(6)}`;
  // Inside another page there is no address of its own.
  if (location.protocol !== 'about:' && location.hash !== fragment) history.replaceState(null, '', fragment || location.pathname + location.search);
  redraw();
}
function zoomBy(factor, at = (view.from + view.to) / 2) {
  zoomTo(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
function zoomFromFragment() {
  const match = /^#zoom=([\d.]+),([\d.]+)$/.exec(location.hash);
  const [from, to] = match ? [Number(match[1]), Number(match[2])] : [0, 1];
  if (to > from) zoomTo(from * stepNs, to * stepNs); else zoomTo(0, stepNs);
}

function listen() {
  const canvas = $('timeline'), overview = $('overview');
  canvas.addEventListener('wheel', e => {
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 30 : 1;
    const sideways = e.shiftKey ? e.deltaY : e.deltaX;
    if (Math.abs(sideways) > Math.abs(e.shiftKey ? 0 : e.deltaY)) {
      const by = sideways * unit / plotWidth * (view.to - view.from);
      zoomTo(view.from + by, view.to + by);
    } else {
      zoomBy(Math.exp(e.deltaY * unit * 0.0018), nsOf(e.clientX - canvas.getBoundingClientRect().left));
    }
  }, {passive: false});
  let grip = null;
  canvas.addEventListener('pointerdown', e => {
    grip = {x: e.clientX, from: view.from, to: view.to};
    canvas.setPointerCapture(e.pointerId);
    canvas.classList.add('dragging');
  });
  canvas.addEventListener('pointermove', e => {
    if (grip) {
      const by = (grip.x - e.clientX) / plotWidth * (grip.to - grip.from);
      zoomTo(grip.from + by, grip.to + by);
    }
    hover(e);
  });
  for (const end of ['pointerup', 'pointercancel']) {
    canvas.addEventListener(end, e => {
      if (grip && end === 'pointerup' && Math.abs(e.clientX - grip.x) < 4) chooseAt(e);
      grip = null;
      canvas.classList.remove('dragging');
    });
  }
  canvas.addEventListener('pointerleave', () => { crosshair = null; hideTip(); redraw(); });
  canvas.addEventListener('dblclick', () => zoomTo(0, stepNs));
  canvas.addEventListener('keydown', e => {
    const by = (view.to - view.from) * 0.2;
    if (e.key === 'ArrowLeft') zoomTo(view.from - by, view.to - by);
    else if (e.key === 'ArrowRight') zoomTo(view.from + by, view.to + by);
    else if (e.key === '+' || e.key === '=') zoomBy(0.6);
    else if (e.key === '-') zoomBy(1 / 0.6);
    else if (e.key === '0') zoomTo(0, stepNs);
    else if (e.ctrlKey || e.metaKey || e.altKey || !['Enter', 'n', 'p', 'l', 'Escape'].includes(e.key) || !chooseByKey(e.key)) return;
    e.preventDefault();
  });
  const shareAt = e => {
    const box = overview.getBoundingClientRect();
    return Math.min(1, Math.max(0, (e.clientX - box.left - kLeft) / (box.width - kLeft - kRight)));
  };
  let anchor = null;
  overview.addEventListener('pointerdown', e => { anchor = shareAt(e); overview.setPointerCapture(e.pointerId); });
  overview.addEventListener('pointermove', e => {
    if (anchor === null) return;
    const other = shareAt(e);
    if (Math.abs(other - anchor) > 0.002) zoomTo(Math.min(anchor, other) * stepNs, Math.max(anchor, other) * stepNs);
  });
  overview.addEventListener('pointerup', e => {
    // A click without a drag moves the window there.
    if (anchor !== null && Math.abs(shareAt(e) - anchor) <= 0.002) {
      const half = (view.to - view.from) / 2;
      zoomTo(anchor * stepNs - half, anchor * stepNs + half);
    }
    anchor = null;
  });
  $('zoom-in').addEventListener('click', () => zoomBy(0.5));
  $('zoom-out').addEventListener('click', () => zoomBy(2));
  $('save-svg').addEventListener('click', saveView);
  $('zoom-all').addEventListener('click', () => zoomTo(0, stepNs));
  $('role').addEventListener('change', drawMap);
  $('map').addEventListener('pointermove', hoverMap);
  $('map').addEventListener('pointerleave', hideTip);
  $('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
  window.addEventListener('hashchange', zoomFromFragment);
  window.addEventListener('resize', () => { redraw(); drawMap(); });
}
