'use strict';

// ---- the plan, decoded -------------------------------------------------------------------------------------------

const plan = JSON.parse(document.getElementById('plan').textContent);
const stepNs = Math.max(1, plan.step_ns);
const kinds = plan.actions.kinds;
const causes = [
  {key: 'load_ns', name: 'waiting for loads', colour: '--stall-load'},
  {key: 'store_ns', name: 'waiting for stores', colour: '--stall-store'},
  {key: 'nothing_ns', name: 'nothing under way', colour: '--stall-nothing'},
];
const phaseNames = {forward: 'forward', backward: 'backward', update: 'update', again: 'computed again'};
const savings = {d: 'kept on the device', h: 'stored to the host', a: 'computed again'};
const savingColours = {d: '--device', h: '--host', a: '--again'};

const lanes = plan.actions.lanes.map(columns => {
  const n = columns.ns.length;
  const lane = {name: columns.lane, n, start: new Float64Array(n), end: new Float64Array(n), columns};
  for (let i = 0, t = 0; i < n; ++i) {
    lane.start[i] = t + columns.gap[i];
    lane.end[i] = t = lane.start[i] + columns.ns[i];
  }
  return lane;
});
const actionName = (lane, i) =>
  plan.actions.what[lane.columns.what[i]] + plan.actions.where[lane.columns.where[i]];
const actionBytes = (lane, i) => plan.actions.sizes[lane.columns.size[i]];

// stallBefore[i]: the index in plan.stalls of the gap before run i, or -1.
const stallBefore = new Int32Array(lanes[0].n).fill(-1);
plan.stalls.at.forEach((at, s) => { stallBefore[at] = s; });

function decodeSeries(series) {
  const sum = deltas => { let v = 0; return Float64Array.from(deltas, d => (v += d)); };
  const out = {ns: sum(series.ns), kinds: [], total: new Float64Array(series.ns.length)};
  for (const kind of kinds) {
    if (!series.kinds[kind]) continue;
    const bytes = sum(series.kinds[kind]);
    out.kinds.push({kind, bytes});
    bytes.forEach((b, i) => { out.total[i] += b; });
  }
  return out;
}
const memory = {device: decodeSeries(plan.memory.device), host: decodeSeries(plan.memory.host)};

// ---- words -------------------------------------------------------------------------------------------------------

function bytesText(bytes) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit + 1 < names.length) { value /= 1024; ++unit; }
  const decimals = unit === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(decimals) + ' ' + names[unit];
}
function timeText(ns) {
  if (Math.abs(ns) >= 1e10) return (ns / 1e9).toFixed(2) + ' s';
  if (Math.abs(ns) >= 1e8) return (ns / 1e6).toFixed(0) + ' ms';
  if (Math.abs(ns) >= 1e6) return (ns / 1e6).toFixed(2) + ' ms';
  return (ns / 1e3).toFixed(1) + ' µs';
}
const percent = share => (100 * share).toFixed(1) + ' %';
const count = n => n.toLocaleString('en-US');
const capText = cap => (cap === null ? 'no cap' : bytesText(cap));

// ---- document ----------------------------------------------------------------------------------------------------

const $ = id => document.getElementById(id);
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'style') node.style.cssText = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const swatch = colour => el('i', {class: 'swatch', style: `background:var(${colour})`});
const cell = (...children) => el('td', {}, ...children);
const headings = (...names) => el('tr', {}, ...names.map(n => el('th', {}, n)));
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = {};  // of the theme in use, read once per theme
function colour(name) { return colourOf[name] ?? (colourOf[name] = css(name)); }

// ---- key numbers, tables -----------------------------------------------------------------------------------------

function tile(id, name, text, raw, share) {
  const node = el('div', {class: 'tile' + (raw === undefined ? ' words' : '')}, el('span', {}, name));
  node.append(el('b', raw === undefined ? {id} : {id, 'data-value': String(raw)}, text));
  if (share !== undefined) {
    node.append(el('div', {class: 'meter'}, el('i', {style: `width:${Math.min(100, 100 * share)}%`})));
  }
  $('tiles').append(node);
}
function fillTiles() {
  const facts = Object.fromEntries(plan.facts);
  $('subtitle').textContent = [facts.model, facts.machine].filter(Boolean).join(' · ');
  tile('step', 'predicted step', timeText(plan.step_ns), plan.step_ns);
  if (plan.tokens_per_s > 0) tile('speed', 'speed', count(Math.round(plan.tokens_per_s)) + ' tok/s', plan.tokens_per_s);
  if (plan.mfu > 0) tile('mfu', 'MFU; HFU ' + percent(plan.hfu), percent(plan.mfu), plan.mfu, plan.mfu);
  const gap = plan.lower_bound_ns > 0 ? plan.step_ns / plan.lower_bound_ns - 1 : 0;
  tile('gap', 'gap to the bound', percent(gap), gap);
  for (const tier of ['device', 'host']) {
    const t = plan[tier], used = t.arena_bytes + t.overhead_bytes;
    tile(tier + '-memory', `${tier} ${t.cap_bytes === null ? 'no cap' : 'of ' + bytesText(t.cap_bytes)}`, bytesText(used), used,
         t.cap_bytes === null ? undefined : used / t.cap_bytes);
  }
  tile('binds', 'what binds', plan.binds);
}

function fillTime() {
  const parts = [['every task once', plan.time.once_ns, '--backward'], ['computed again', plan.time.again_ns, '--again'],
                 ['slowed by copies', plan.time.slowed_ns, '--slowed'],
                 ...causes.map(c => [c.name, plan.time.stalls[c.key], c.colour]),
                 ['last transfers', plan.time.tail_ns, '--tail']];
  for (const [name, ns, colourName] of parts) {
    if (ns < stepNs * 1e-6) continue;
    $('time-bar').append(el('i', {style: `width:${100 * ns / stepNs}%;background:var(${colourName})`, title: name}));
    $('time-legend').append(el('span', {}, swatch(colourName), name + ' ', el('b', {}, percent(ns / stepNs)), ' ' + timeText(ns)));
  }
  $('bound').textContent = `No plan of this program on this machine is faster than ${timeText(plan.lower_bound_ns)}.`;
}

function kindBar(byKind) {
  const total = Object.values(byKind).reduce((a, b) => a + b, 0);
  const bar = el('div', {class: 'stack', style: 'height:12px;margin-top:5px'});
  const legend = el('div', {class: 'legend', style: 'margin-top:5px'});
  for (const kind of kinds) {
    if (!byKind[kind]) continue;
    bar.append(el('i', {style: `width:${100 * byKind[kind] / total}%;background:var(--${kind})`}));
    legend.append(el('span', {}, swatch('--' + kind), kind + ' ', el('b', {}, bytesText(byKind[kind]))));
  }
  return [bar, legend];
}
function fillLinks() {
  for (const lane of plan.lanes.slice(1)) {
    const moved = Object.values(lane.bytes).reduce((a, b) => a + b, 0);
    const rate = lane.busy_ns > 0 ? (moved / lane.busy_ns).toFixed(1) + ' GB/s' : '';
    const direction = lane.lane === 'load' ? 'host to device' : 'device to host';
    $('links').append(
      el('div', {class: 'row-title'}, el('span', {}, el('b', {}, direction), ` busy ${percent(lane.busy_ns / stepNs)}`),
         el('span', {class: 'muted'}, `${bytesText(moved)} in ${count(lane.actions)} ${lane.lane}s, ${rate}`)),
      el('div', {class: 'meter'}, el('i', {style: `width:${100 * lane.busy_ns / stepNs}%`})));
    if (moved > 0) $('links').append(...kindBar(lane.bytes));
  }
}
function fillMemory() {
  for (const tier of ['device', 'host']) {
    const t = plan[tier];
    $('memory').append(
      el('div', {class: 'row-title'}, el('span', {}, el('b', {}, tier), ` ${capText(t.cap_bytes)}`),
         el('span', {class: 'muted'}, `arena ${bytesText(t.arena_bytes)}, beside it ${bytesText(t.overhead_bytes)}, ` +
            `most in use ${bytesText(t.peak_bytes)} at ${timeText(t.peak_ns)}`)),
      el('div', {class: 'muted hint', style: 'margin-top:2px'}, 'between steps:'), ...kindBar(t.homes));
  }
}
function fillTables() {
  $('saved').append(headings('activation', 'bytes', 'device', 'host', 'again'));
  for (const r of plan.saved) {
    const share = key => (r[key] > 0 ? (100 * r[key] / r.bytes).toFixed(0) + ' %' : '–');
    $('saved').append(el('tr', {}, cell(r.role), cell(bytesText(r.bytes)), cell(share('device')), cell(share('host')), cell(share('again'))));
  }
  $('map-card').hidden = plan.saved.length === 0;

  $('stall-words').textContent = plan.stall_count === 0 ? 'The compute lane never waits.' :
    `${count(plan.stall_count)} times the compute lane waits; the longest:`;
  $('stalls').className = 'words-left';
  if (plan.stall_count > 0) $('stalls').append(headings('ms', 'at', 'before', 'last waited for'));
  for (const s of plan.longest_stalls.slice(0, 12)) {
    const ns = causes.reduce((sum, c) => sum + s[c.key], 0);
    const main = causes.reduce((a, b) => (s[b.key] > s[a.key] ? b : a));
    const show = () => { zoomTo(s.begin_ns - 3 * ns, s.begin_ns + 4 * ns); $('timeline').scrollIntoView({block: 'center'}); };
    $('stalls').append(el('tr', {class: 'link', title: 'Show in the timeline', onclick: show},
      cell(swatch(main.colour), (ns / 1e6).toFixed(2)), cell(timeText(s.begin_ns)), cell(s.before), cell(s.waited_for || '–')));
  }

  $('again-card').hidden = plan.repeated.length === 0;
  $('again').append(headings('task', 'runs', 'time', 'of the step'));
  for (const t of plan.repeated) {
    $('again').append(el('tr', {}, cell(t.what), cell(count(t.runs)), cell(timeText(t.ns)), cell(percent(t.ns / stepNs))));
  }

  $('what-if-card').hidden = plan.what_ifs.length === 0;
  $('what-ifs').append(headings('change', 'speed'));
  for (const w of plan.what_ifs) {
    const gain = 100 * (w.speedup - 1);
    $('what-ifs').append(el('tr', {}, cell(w.change), cell((gain > 0 ? '+' : '') + gain.toFixed(1) + ' %')));
  }

  for (const [name, words] of [...plan.facts, ['policy', plan.policy]]) {
    $('facts').append(el('tr', {}, cell(name), cell(words)));
  }
}

function fillLegends() {
  const seen = new Set(lanes[0].columns.kind.map(k => plan.actions.phases[k]));
  for (const phase of ['forward', 'backward', 'again', 'update']) {
    if (seen.has(phase)) $('lane-legend').append(el('span', {}, swatch('--' + phase), phaseNames[phase]));
  }
  for (const c of causes) {
    if (plan.time.stalls[c.key] > 0) $('lane-legend').append(el('span', {}, swatch(c.colour), c.name));
  }
  const used = new Set([...memory.device.kinds, ...memory.host.kinds].map(k => k.kind));
  for (const kind of kinds) {
    if (used.has(kind)) $('kind-legend').append(el('span', {}, swatch('--' + kind), kind));
  }
  $('kind-legend').append(el('span', {}, swatch('--overhead'), 'beside the arena'));
  for (const [key, name] of Object.entries(savings)) $('map-legend').append(el('span', {}, swatch(savingColours[key]), name));
}

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

const kLeft = 76, kRight = 8, kLaneHeight = 34, kLaneGap = 6;
const kMemory = {device: 150, host: 110};
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
  return 0.299 * r + 0.587 * g + 0.114 * b > 150 ? '#1d232b' : '#ffffff';
}
const colourOfAction = (l, i) => '--' + (l === 0 ? plan.actions.phases[lanes[0].columns.kind[i]] : kinds[lanes[l].columns.kind[i]]);

function paintLane(ctx, l, x, width, y, height, from, to, labels) {
  const lane = lanes[l];
  ctx.fillStyle = colour('--track');
  ctx.fillRect(x, y, width, height);
  const painter = new LanePainter(ctx, x, width, y, height, from, to);
  for (let i = above(lane.end, from); i < lane.n && (lane.start[i] < to || (l === 0 && stallBefore[i] >= 0)); ++i) {
    painter.item(lane.start[i], lane.end[i], colourOfAction(l, i), labels && (() => actionName(lane, i)));
    if (l !== 0 || stallBefore[i] < 0) continue;
    let t = lane.start[i] - lane.columns.gap[i];
    if (t > to) break;
    for (const c of causes) {
      const ns = plan.stalls[c.key][stallBefore[i]];
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
      ctx.fillRect(kLeft + p, y + height - level - part, 1.5, part);
      level += part;
    }
  }
  ctx.clearRect(kLeft + plotWidth, y, 2, height);
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
  ctx.fillStyle = colour('--ink');
  ctx.fillText(tier, kLeft - 8, y + height / 2);
  ctx.fillStyle = colour('--muted');
  ctx.fillText(t.cap_bytes === null ? bytesText(t.arena_bytes + t.overhead_bytes) : bytesText(t.cap_bytes), kLeft - 8,
               y + Math.max(7, height - h(t.cap_bytes ?? t.arena_bytes + t.overhead_bytes)));
  ctx.fillText('0', kLeft - 8, y + height - 6);
  ctx.textAlign = 'left';
}

const laneTop = l => l * (kLaneHeight + kLaneGap);
const memoryTop = {device: 3 * (kLaneHeight + kLaneGap) + 26, host: 3 * (kLaneHeight + kLaneGap) + 26 + kMemory.device + 12};
const kTimelineHeight = memoryTop.host + kMemory.host + 4;

let crosshair = null;
function drawTimeline() {
  const {ctx, width} = prepared($('timeline'), kTimelineHeight);
  plotWidth = width - kLeft - kRight;
  for (let l = 0; l < 3; ++l) {
    paintLane(ctx, l, kLeft, plotWidth, laneTop(l), kLaneHeight, view.from, view.to, true);
    ctx.textAlign = 'right';
    ctx.fillStyle = colour('--ink');
    ctx.fillText(lanes[l].name, kLeft - 8, laneTop(l) + kLaneHeight / 2);
    ctx.textAlign = 'left';
  }
  drawAxis(ctx, laneTop(3) + 6);
  paintMemory(ctx, 'device', memoryTop.device, kMemory.device);
  paintMemory(ctx, 'host', memoryTop.host, kMemory.host);
  if (crosshair !== null) {
    ctx.fillStyle = colour('--ink');
    ctx.fillRect(Math.round(crosshair), 0, 1, kTimelineHeight);
  }
}
function drawAxis(ctx, y) {
  const step = niceStep(view.to - view.from, Math.max(3, plotWidth / 120));
  const unit = step >= 1e9 ? [1e9, 's'] : step >= 1e5 ? [1e6, 'ms'] : [1e3, 'µs'];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  ctx.fillStyle = colour('--muted');
  ctx.textAlign = 'center';
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    ctx.fillRect(Math.round(xOf(t)), y - 6, 1, 4);
    const x = Math.min(Math.max(xOf(t), kLeft + 14), kLeft + plotWidth - 24);
    ctx.fillText((t / unit[0]).toFixed(decimals) + ' ' + unit[1], x, y + 6);
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
  if (location.hash !== fragment) history.replaceState(null, '', fragment || location.pathname + location.search);
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
    canvas.addEventListener(end, () => { grip = null; canvas.classList.remove('dragging'); });
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
    else return;
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
  $('zoom-all').addEventListener('click', () => zoomTo(0, stepNs));
  $('role').addEventListener('change', drawMap);
  $('map').addEventListener('pointermove', hoverMap);
  $('map').addEventListener('pointerleave', hideTip);
  $('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
  window.addEventListener('hashchange', zoomFromFragment);
  window.addEventListener('resize', () => { redraw(); drawMap(); });
}

// ---- what lies under the pointer ---------------------------------------------------------------------------------

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
  const kind = l === 0 ? phaseNames[plan.actions.phases[lane.columns.kind[i]]] : `${lane.name} of ${kinds[lane.columns.kind[i]]}`;
  return [el('b', {}, actionName(lane, i)), kind, `${timeText(ns)} from ${timeText(lane.start[i])}`,
          l === 0 ? `operands ${bytesText(bytes)}` : `${bytesText(bytes)}, ${(bytes / Math.max(1, ns)).toFixed(1)} GB/s`];
}
function describeStall(i) {
  const s = stallBefore[i], rows = [el('b', {}, `stall of ${timeText(lanes[0].columns.gap[i])}`)];
  for (const c of causes) {
    if (plan.stalls[c.key][s] > 0) rows.push(el('div', {}, swatch(c.colour), `${c.name} ${timeText(plan.stalls[c.key][s])}`));
  }
  rows.push('before ' + actionName(lanes[0], i));
  const l = plan.stalls.lane[s];
  if (l > 0) rows.push(`last waited for: ${lanes[l].name} ${actionName(lanes[l], plan.stalls.last[s])}`);
  return rows;
}
// What lane l does at a time; near misses of a few pixels count.
function describeLane(l, ns) {
  const lane = lanes[l], slack = 2 / plotWidth * (view.to - view.from);
  let i = above(lane.end, ns);
  if (i < lane.n && lane.start[i] > ns) {
    if (l === 0 && stallBefore[i] >= 0 && ns >= lane.start[i] - lane.columns.gap[i]) return describeStall(i);
    if (lane.start[i] - ns > slack) i = i > 0 && ns - lane.end[i - 1] < slack ? i - 1 : lane.n;
  }
  return i < lane.n ? describeAction(l, i) : [`${lane.name}: nothing at ${timeText(ns)}`];
}
function describeMemory(tier, ns) {
  const series = memory[tier], i = above(series.ns, ns) - 1;
  if (i < 0) return [`${tier}: empty at ${timeText(ns)}`];
  const rows = [el('b', {}, `${tier}: ${bytesText(series.total[i])} in use`), `at ${timeText(ns)}`];
  for (const {kind, bytes} of [...series.kinds].reverse()) {
    if (bytes[i] > 0) rows.push(el('div', {}, swatch('--' + kind), `${kind} ${bytesText(bytes[i])}`));
  }
  return rows;
}
function hover(e) {
  const box = $('timeline').getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  if (x < kLeft || x > kLeft + plotWidth) { crosshair = null; hideTip(); redraw(); return; }
  crosshair = x;
  redraw();
  const ns = nsOf(x), l = Math.floor(y / (kLaneHeight + kLaneGap));
  if (l < 3) showTip(e, describeLane(l, ns));
  else if (y >= memoryTop.host) showTip(e, describeMemory('host', ns));
  else if (y >= memoryTop.device) showTip(e, describeMemory('device', ns));
  else hideTip();
}

// ---- the map -----------------------------------------------------------------------------------------------------

const map = plan.map;
const grid = {};  // where the map's cells are, for the pointer
const kWeightWidth = 22;
function rolesOf(row, column) {
  const wanted = $('role').value, out = [];
  map.roles.forEach((role, r) => {
    const state = map.cells[row][column * map.roles.length + r];
    if (state !== '-' && (wanted === '' || wanted === role)) out.push({role, state, bytes: map.role_bytes[r]});
  });
  return out;
}
function roomBefore(column) {  // rounds stand a little apart
  return column > 0 && map.columns[column][0] !== map.columns[column - 1][0] ? 1 : 0;
}
function layoutMap() {
  const rows = map.layers.length, columns = map.columns.length;
  const rounds = new Set(map.columns.map(c => c[0])).size;
  grid.left = 46;
  grid.cells = grid.left + 3 * kWeightWidth + 14;
  const room = $('map').parentElement.clientWidth - grid.cells - 6 * (rounds - 1) - 2;
  grid.w = Math.max(7, Math.min(96, room / Math.max(1, columns)));
  grid.h = Math.max(9, Math.min(22, 460 / rows));
  grid.top = 34;
  grid.x = [];
  let x = grid.cells;
  for (let c = 0; c < columns; ++c) {
    x += 6 * roomBefore(c);
    grid.x.push(x);
    x += grid.w;
  }
  grid.width = x + 2;
  grid.height = grid.top + rows * grid.h + 4;
}
// Parts of a cell, side by side in proportion to their bytes.
function paintCell(ctx, x, y, w, h, parts) {
  const total = parts.reduce((sum, p) => sum + p.bytes, 0);
  if (total === 0) return;
  for (const {bytes, name} of parts) {
    const part = w * bytes / total;
    ctx.fillStyle = colour(name);
    ctx.fillRect(x, y, part, h);
    x += part;
  }
}
function drawMap() {
  if (plan.saved.length === 0) return;
  layoutMap();
  const {ctx} = prepared($('map'), grid.height, grid.width);
  const rows = map.layers.length;
  ctx.fillStyle = colour('--muted');
  ctx.font = '11px system-ui, "DejaVu Sans", sans-serif';
  ctx.textAlign = 'center';
  ['w', 'g', 'opt'].forEach((name, k) => ctx.fillText(name, grid.left + (k + 0.5) * kWeightWidth, grid.top - 9));
  map.columns.forEach(([round, chunk], c) => {
    const every = Math.ceil(26 / grid.w);
    if (c === 0 || roomBefore(c)) {
      ctx.textAlign = 'left';
      ctx.fillText(grid.w * 4 > 44 ? `round ${round}` : `r${round}`, grid.x[c], grid.top - 24);
      ctx.textAlign = 'center';
    }
    if (chunk % every === 0) ctx.fillText(chunk, grid.x[c] + grid.w / 2, grid.top - 9);
  });
  ctx.textAlign = 'right';
  for (let row = 0; row < rows; ++row) {
    const y = grid.top + row * grid.h, gap = grid.h > 12 ? 2 : 1;
    const every = grid.h >= 13 ? 1 : 2;
    ctx.fillStyle = colour('--muted');
    if (row === rows - 1) ctx.fillText('ends', grid.left - 6, y + grid.h / 2);
    else if (row % every === 0) ctx.fillText(map.layers[row], grid.left - 6, y + grid.h / 2);
    for (let k = 0; k < 3; ++k) {
      const w = map.weights[row], device = w.device_bytes[k];
      paintCell(ctx, grid.left + k * kWeightWidth + 1, y, kWeightWidth - 2, grid.h - gap,
                [{bytes: device, name: '--device'}, {bytes: w.bytes[k] - device, name: '--host'}]);
    }
    for (let c = 0; c < map.columns.length; ++c) {
      const here = rolesOf(row, c), by = state => here.reduce((s, r) => s + (r.state === state ? r.bytes : 0), 0);
      paintCell(ctx, grid.x[c], y, grid.w - (grid.w > 12 ? 2 : 1), grid.h - gap,
                Object.entries(savingColours).map(([state, name]) => ({bytes: by(state), name})));
    }
  }
}
function hoverMap(e) {
  const box = $('map').getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  const row = Math.floor((y - grid.top) / grid.h);
  if (row < 0 || row >= map.layers.length) return hideTip();
  const ends = row === map.layers.length - 1, where = ends ? 'embedding and head' : `layer ${map.layers[row]}`;
  const k = Math.floor((x - grid.left) / kWeightWidth);
  if (k >= 0 && k < 3) {
    const w = map.weights[row];
    return showTip(e, [el('b', {}, `${map.weight_kinds[k]}, ${where}, between steps`),
                       `${bytesText(w.device_bytes[k])} on the device`, `${bytesText(w.bytes[k] - w.device_bytes[k])} elsewhere`]);
  }
  const c = grid.x.findIndex(left => x >= left && x < left + grid.w);
  if (c < 0) return hideTip();
  const here = rolesOf(row, c);
  showTip(e, [el('b', {}, `${where}, round ${map.columns[c][0]}, chunk ${map.columns[c][1]}`),
              ...(here.length ? here.map(r => el('div', {}, swatch(savingColours[r.state]), `${r.role}, ${bytesText(r.bytes)}: ${savings[r.state]}`))
                              : ['nothing is saved here'])]);
}

// ---- start -------------------------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const name of Object.keys(colourOf)) delete colourOf[name];
  redraw();
  drawMap();
}
function start() {
  fillTiles();
  fillTime();
  fillLinks();
  fillMemory();
  fillTables();
  fillLegends();
  $('role').append(el('option', {value: ''}, 'all activations'), ...map.roles.map(r => el('option', {value: r}, r)));
  document.title = `Plan: ${timeText(plan.step_ns)} per step`;
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', e => setTheme(e.matches ? 'dark' : 'light'));
  document.documentElement.dataset.theme = dark.matches ? 'dark' : 'light';
  listen();
  zoomFromFragment();
  drawTimeline();
  drawOverview();
  drawMap();
  document.body.dataset.ready = 'yes';
}
start();
