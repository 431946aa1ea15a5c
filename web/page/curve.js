// SPDX-License-Identifier: Apache-2.0
// Speed by device memory, at once from plans that were made before, and better as the search answers; cards by price and speed.

const frontiers = JSON.parse($('frontiers').textContent);
const curvePlanner = {planner: null}, cardPlanner = {planner: null}, kSearchCards = 'Plan what is asked on all of them';
const searchedPoints = new Map();  // by what is asked, less the device cap: cap in GiB to a point
// USD an hour of renting one card: round numbers of public lists in the middle of 2025, for the reader to change.
const kPrices = {rtx3090: 0.2, rtx4090: 0.4, rtx5090: 0.7, a100: 1.3, h100: 2.5, h200: 3.2}, kPricesOf = 'mid-2025';
const prices = {...kPrices};
const priceOf = (text, key) => Number(text) > 0 && Number.isFinite(Number(text)) ? Number(text) : kPrices[key];

// All that the answer depends on but the device cap at the slider, which is the first one set.
const curveKey = machine => {
  const asked = settings(), slider = asked.findIndex(s => s.startsWith('memory.device='));
  return JSON.stringify({...JSON.parse(request(machine)), settings: asked.filter((_, i) => i !== slider)});
};
// Whether what was planned before is of what the form asks, machine, model and host memory aside.
const isAsPlanned = () => !brought.model && $('more').value.trim() === '' && setRates().length === 0 &&
  Object.keys(listed).every(id => $(id).value === kFirst[id]) && ['seq', 'step', 'devices'].every(id => $(id).value === String(frontiers.asked[id]));
// Beside as much host memory as is asked for, or else the most of those with less: more of it makes no plan slower.
function plannedCurve(machine) {
  if (!isAsPlanned()) return undefined;
  const host = Number($('host').value), there = frontiers.curves.filter(c => c.machine === machine && c.model === $('model').value && c.host <= host);
  return there.reduce((best, c) => (best && best.host > c.host ? best : c), undefined);
}
const plannedHere = () => (brought.machine ? undefined : plannedCurve($('machine').value));
// The commits that planned curves.
const stamps = curves => [...new Set(curves.map(c => c.sluice))].join(' and ');
// Ascending caps; what this page searched takes the place of what was planned before.
function merged(curve, searched) {
  const points = new Map((curve?.points ?? []).map(p => [p.device, {...p, host: curve.host}]));
  for (const [cap, p] of searched ?? []) points.set(cap, p);
  return [...points.values()].sort((a, b) => a.device - b.device);
}
const pointsNow = () => merged(plannedHere(), searchedPoints.get(curveKey()));
function keepPoint(key, device, answer) {
  if (!answer.plan && !answer.does_not_fit) return;  // another error says nothing of the cap
  if (!searchedPoints.has(key)) searchedPoints.set(key, new Map());
  const plan = answer.plan ? JSON.parse(answer.plan) : null;
  searchedPoints.get(key).set(device, plan ? {device, searched: true, tokens_per_s: plan.tokens_per_s, binds: plan.binds, mfu: plan.mfu} :
    {device, searched: true, refused: answer.error});
  showCurve();
}
const perSecond = n => `${Math.round(n).toLocaleString('en-US')} tokens/s`;
// At a cap: between two plans, what lies between their speeds.
function readAt(points, cap) {
  const works = points.filter(p => p.tokens_per_s), below = works.filter(p => p.device <= cap).pop(), above = works.find(p => p.device >= cap);
  if (!below && points.some(p => p.refused && p.device >= cap)) return 'no plan is possible';
  if (!below) return works.length === 0 ? 'not planned yet' : 'less than the smallest memory that was planned for';
  if (!above || above.device === below.device) return `${perSecond(below.tokens_per_s)}; what binds: ${below.binds}`;
  return `about ${perSecond(speedAt(points, cap))}, between the plans for ${below.device} and ${above.device} GiB; what binds: ${below.binds}`;
}
// A speed at a cap, as the line between the plans has it; 0: none.
function speedAt(points, cap) {
  const works = points.filter(p => p.tokens_per_s), below = works.filter(p => p.device <= cap).pop(), above = works.find(p => p.device >= cap);
  if (!below || !above) return below?.tokens_per_s ?? 0;
  return above.device === below.device ? below.tokens_per_s :
    below.tokens_per_s + (cap - below.device) / (above.device - below.device) * (above.tokens_per_s - below.tokens_per_s);
}
function moreWords(points, cap) {
  const kMore = 8, now = speedAt(points, cap), more = speedAt(points, cap + kMore), last = points[points.length - 1].device;
  if (!now || cap >= last) return '';
  const to = Math.min(cap + kMore, last);
  const gain = (100 * (more / now - 1)).toFixed(1);
  return ` With ${to - cap} GiB more: about ${perSecond(more)}, ${gain > 0 ? `${gain}\u00a0%` : 'no'} faster.`;
}
function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function curveOf(points, cap) {
  const width = Math.max(300, $('curve').clientWidth), height = 190, left = 62, right = 14, top = 12, bottom = 34;
  const works = points.filter(p => p.tokens_per_s), last = Math.max(cap, ...points.map(p => p.device));
  const most = 1.08 * Math.max(...works.map(p => p.tokens_per_s), 1);
  const x = gibs => left + (width - left - right) * Math.sqrt(gibs / last), y = speed => top + (height - top - bottom) * (1 - speed / most);
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': 'Tokens per second by device memory'});
  for (const share of [0, 0.5, 1]) {
    const speed = share * most / 1.08;
    picture.append(svg('line', {x1: left, x2: width - right, y1: y(speed), y2: y(speed), class: 'grid'}),
                   svg('text', {x: left - 6, y: y(speed) + 4, 'text-anchor': 'end'}, Math.round(speed).toLocaleString('en-US')));
  }
  let free = -1e9;
  for (const p of points) {
    if (x(p.device) - free < 34) continue;
    free = x(p.device);
    picture.append(svg('text', {x: x(p.device), y: height - 18, 'text-anchor': 'middle'}, String(p.device)));
  }
  picture.append(svg('text', {x: width - right, y: height - 3, 'text-anchor': 'end'}, 'GiB of device memory'),
                 svg('polyline', {points: works.map(p => `${x(p.device)},${y(p.tokens_per_s)}`).join(' '), class: 'curve'}),
                 svg('line', {x1: x(cap), x2: x(cap), y1: top, y2: height - bottom, class: 'here'}));
  for (const p of points) {
    const words = p.refused ?? `${p.device} GiB: ${perSecond(p.tokens_per_s)}; what binds: ${p.binds}; ${p.searched ? 'searched in this page' : `planned before, beside ${p.host} GiB of host memory`}`;
    picture.append(p.refused ? svg('text', {x: x(p.device), y: y(0) - 4, 'text-anchor': 'middle', class: 'no'}, '×', svg('title', {}, words)) :
      svg('circle', {cx: x(p.device), cy: y(p.tokens_per_s), r: 5, class: p.searched ? 'searched' : 'before'}, svg('title', {}, words)));
  }
  return picture;
}
// The curve and what it says at the slider; shown within the frame that the slider moved in.
function showCurve() {
  const began = performance.now(), points = pointsNow(), cap = Number($('device').value);
  $('curve-card').hidden = false;
  $('curve').replaceChildren(...(points.length > 1 ? [curveOf(points, cap)] : []));
  const at = points.length > 1 ? readAt(points, cap) : '', binds = /what binds: (.*)$/.exec(at)?.[1];
  $('curve-here').textContent = at ? `${cap} GiB: ${at}.${moreWords(points, cap)} ${binds ? bindsWords(binds) : ''}` : '';
  const curve = plannedHere(), {asked, curves} = frontiers, list = words => [...new Set(words)].join(', ');
  const hosts = [...new Set(curves.map(c => c.model))].map(model => `${model} beside ${[...new Set(curves.filter(c => c.model === model).map(c => c.host))].join(' or ')} GiB`);
  const words = [];
  if (points.some(p => !p.searched)) {
    words.push(`Rings: planned before, with ${curve.host} GiB of host memory, by ${stamps([curve])}.`);
    if (curve.host < Number($('host').value)) words.push(`You have ${$('host').value} GiB: expect about this speed or a higher one.`);
  }
  if (points.length > 1) {
    words.push('Dots: searched in this page. Crosses: no plan is possible. Every speed is estimated.');
    if (points.some((p, i) => i > 0 && p.tokens_per_s < 0.995 * points[i - 1].tokens_per_s)) {
      words.push('Where less memory is faster here, the optimizer\u2019s state did not fit in 16 bits an element and “auto” took 8: there is less to move.');
    }
  } else {
    words.push(`Plans made before are for ${asked.step.toLocaleString('en-US')} tokens a step in sequences of ${asked.seq.toLocaleString('en-US')}, one card (${
      list(curves.map(c => c.machine))}) and at least so much host memory: ${hosts.join('; ')}. The curve of what is asked now can be searched.`);
  }
  $('curve-words').textContent = words.join(' ');
  showCards();
  document.body.dataset.curveMs = (performance.now() - began).toFixed(1);
}
// The cap that was chosen, 8 GiB more, and then six from all of the card to what is tight, one after the other: less than what was
// refused is refused.
async function searchCurve() {
  if (curvePlanner.planner) { curvePlanner.planner.stop(); return; }
  if (settings().filter(s => s.startsWith('memory.device=')).length > 1) {
    $('curve-doing').textContent = 'memory.device under "more settings" says the cap: take it out to search over caps';
    return;
  }
  await reading;
  const key = curveKey(), asked = JSON.parse(key), most = Number($('device').max), least = Math.max(1, 0.04 * most), here = plannedHere();
  const caps = here ? here.points.map(p => p.device) : [0, 0.2, 0.4, 0.6, 0.8, 1].map(s => Math.round(2 * least * (most / least) ** s) / 2);
  curvePlanner.planner = new Planner();
  $('search-curve').textContent = 'Stop';
  const chosen = Number($('device').value), wanted = [...new Set([chosen, Math.min(chosen + 8, most), ...caps.toReversed()])];
  let refused = 0, done = 0;
  for (const cap of wanted) {
    ++done;
    if (cap <= refused) continue;
    $('curve-doing').textContent = `planning ${cap} GiB, ${done} of ${wanted.length}`;
    const answer = await curvePlanner.planner.ask('plan', JSON.stringify({...asked, settings: [...asked.settings, `memory.device=${cap}GiB`]}));
    if (!answer) break;
    if (answer.does_not_fit) refused = Math.max(refused, cap);
    keepPoint(key, cap, answer);
  }
  curvePlanner.planner.end();
  curvePlanner.planner = null;
  $('curve-doing').textContent = '';
  $('search-curve').textContent = 'Search this curve';
}
// Cards with all of their memory, the cheapest tokens first: by plans made before, or by searches of what is asked now.
const kCards = Object.keys(kPrices), mostOf = key => Math.floor(2 * machineOf(key).usable_bytes / kGiB) / 2;
const cardPlan = key => merged(plannedCurve(key), searchedPoints.get(curveKey(key))).find(p => p.device === mostOf(key)) ??
  plannedCurve(key)?.points.filter(p => p.tokens_per_s).pop();
function showCards() {
  const rows = kCards.map(key => {
    const p = cardPlan(key);
    return {key, p, cost: p?.tokens_per_s ? prices[key] / p.tokens_per_s / 3600 * 1e9 : Infinity};
  }).sort((a, b) => a.cost - b.cost);
  $('cards-card').hidden = setRates().length > 0;  // which are of one card
  if ($('cards-card').hidden || $('cards').contains(document.activeElement) && document.activeElement.tagName === 'INPUT') return;
  const price = key => el('input', {type: 'number', min: '0', step: '0.05', value: String(prices[key]), 'aria-label': `USD an hour of ${machineOf(key).card}`,
    oninput: e => { prices[key] = priceOf(e.target.value, key); keepInAddress(); },
    onchange: e => { e.target.blur(); showCards(); }});
  const cell = (...words) => el('td', {}, ...words);
  $('cards').replaceChildren(
    el('tr', {}, ...['card', 'GiB', 'tokens/s', 'USD an hour', 'USD for 1 B tokens', 'what binds', 'how far off'].map(words => el('th', {scope: 'col'}, words))),
    ...rows.map(({key, p, cost}) => el('tr', {}, el('th', {scope: 'row'}, machineOf(key).card), cell(String(p?.device ?? mostOf(key))),
      cell(p?.tokens_per_s ? Math.round(p.tokens_per_s).toLocaleString('en-US') : p ? 'no plan fits' : 'not planned yet'), cell(price(key)),
      cell(cost < Infinity ? cost.toFixed(cost < 100 ? 1 : 0) : ''), cell(p?.binds ?? ''), cell(`rates ${machineOf(key).reached}; ${errorWords(key)}`))));
  const before = rows.filter(row => row.p && !row.p.searched).map(row => plannedCurve(row.key));
  $('search-cards').hidden = before.length === rows.length && before.every(c => c.host === Number($('host').value));
  $('cards-words').textContent = 'Every card with all of its memory. ' +
    (before.length ? `Plans made before, with ${before[0].host} GiB of host memory, by ${stamps(before)}. ` : '') +
    `Prices are round numbers of public lists, ${kPricesOf}: type your own.`;
}
// What is asked now, on every card with all of its memory.
async function searchCards() {
  if (cardPlanner.planner) { cardPlanner.planner.stop(); return; }
  const ended = cardPlanner.planner = new Planner();
  $('search-cards').textContent = 'Stop';
  for (const key of kCards) {
    $('cards-doing').textContent = `planning for ${machineOf(key).card}`;
    const asked = curveKey(key), whole = JSON.parse(asked), cap = mostOf(key);
    const answer = await ended.ask('plan', JSON.stringify({...whole, settings: [...whole.settings, `memory.device=${cap}GiB`]}));
    if (!answer) break;
    keepPoint(asked, cap, answer);
    $('cards-doing').textContent = answer.plan || answer.does_not_fit ? '' : answer.error;
  }
  ended.end();
  cardPlanner.planner = null;
  $('search-cards').textContent = kSearchCards;
}
