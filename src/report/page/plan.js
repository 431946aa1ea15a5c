// SPDX-License-Identifier: Apache-2.0
// The plan as the page's scripts see it, and how numbers become words and elements.
'use strict';

// ---- the plan, decoded -------------------------------------------------------------------------------------------

const plan = JSON.parse(document.getElementById('plan').textContent);
const stepNs = Math.max(1, plan.step_ns);
const kinds = plan.actions.kinds;
const kKindWords = {param: 'weights', grad: 'gradients', opt_state: 'optimizer state', activation: 'activations', act_grad: 'gradients of activations',
                    input: 'inputs', constant: 'constants', metric: 'metrics', cache: 'keys and values of text so far'};
const kindWords = kind => kKindWords[kind] ?? kind;
const causes = [
  {key: 'load_ns', name: 'waiting for loads', colour: '--stall-load'},
  {key: 'store_ns', name: 'waiting for stores', colour: '--stall-store'},
  {key: 'device_ns', name: 'waiting for another device', colour: '--stall-device'},
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

const computes = l => lanes[l].name.startsWith('compute');
// Runs tasks: computes, or exchanges with other processes. Others copy objects.
const runs = l => computes(l) || lanes[l].name.startsWith('network');
// stallBefore[l][i]: the index in plan.stalls of the gap before run i of compute lane l, or -1.
const stallBefore = lanes.map((lane, l) => new Int32Array(computes(l) ? lane.n : 0).fill(-1));
plan.stalls.at.forEach((at, s) => { stallBefore[plan.stalls.on[s]][at] = s; });

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
// Devices, then the host.
const tiers = Object.keys(plan.memory).sort((a, b) => (a === 'host') - (b === 'host') || (a < b ? -1 : 1));
const memory = Object.fromEntries(tiers.map(tier => [tier, decodeSeries(plan.memory[tier])]));

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
  if (Math.abs(ns) >= 1e9) return (ns / 1e9).toFixed(3) + ' s';
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
