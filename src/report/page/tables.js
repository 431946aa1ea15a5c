// SPDX-License-Identifier: Apache-2.0
// Key numbers, tables and legends.

function tile(id, name, text, raw, share) {
  const node = el('div', {class: 'tile' + (raw === undefined ? ' words' : '')}, el('span', {}, name));
  node.append(el('b', raw === undefined ? {id} : {id, 'data-value': String(raw)}, text));
  if (share !== undefined) {
    node.append(el('div', {class: 'meter'}, el('i', {style: `width:${Math.min(100, 100 * share)}%`})));
  }
  $('tiles').append(node);
}
// What is planned, and by what.
function fillTitle() {
  const facts = Object.fromEntries(plan.facts);
  const capWords = ['device', 'host'].filter(tier => plan[tier].cap_bytes !== null)
    .map(tier => `${bytesText(plan[tier].cap_bytes)} of ${tier} memory`);
  const model = plan.model || 'One training step';
  $('title').textContent = model + (capWords.length ? ` within ${capWords.join(' and ')}` : '');
  $('subtitle').textContent = ['the plan of one training step', facts.machine, plan.tokens > 0 ? `${count(plan.tokens)} tokens` : '',
                               facts.sluice && `sluice ${facts.sluice}`].filter(Boolean).join(' · ');
  document.title = `${$('title').textContent}: ${timeText(plan.step_ns)} per step`;
}
function memoryTile(tier) {
  const t = plan[tier], reserved = t.arena_bytes + t.overhead_bytes, used = t.peak_bytes + t.overhead_bytes;
  const of = t.cap_bytes ?? reserved;
  const part = (bytes, name) => el('i', {class: 'part ' + name, style: `width:${Math.min(100, 100 * bytes / of)}%`});
  $('tiles').append(el('div', {class: 'tile'}, el('span', {}, `${tier} memory used, at most`),
    el('b', {id: tier + '-memory', 'data-value': String(used), 'data-reserved': String(reserved)}, bytesText(used)),
    el('small', {}, `${bytesText(reserved)} reserved${t.cap_bytes === null ? ', no cap' : ' of ' + bytesText(t.cap_bytes)}`),
    el('div', {class: 'meter'}, part(reserved, 'reserved'), part(used, 'used'))));
}
function fillTiles() {
  if (plan.tokens_per_s > 0) tile('speed', 'tokens per second', count(Math.round(plan.tokens_per_s)), plan.tokens_per_s);
  tile('step', 'predicted step', timeText(plan.step_ns), plan.step_ns);
  if (plan.mfu > 0) tile('mfu', 'MFU; HFU ' + percent(plan.hfu), percent(plan.mfu), plan.mfu, plan.mfu);
  const gap = plan.lower_bound_ns > 0 ? plan.step_ns / plan.lower_bound_ns - 1 : 0;
  tile('gap', 'gap to the bound', percent(gap), gap);
  tiers.forEach(memoryTile);
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
  $('bound').textContent = `No plan of this program on this machine is faster than ${timeText(plan.lower_bound_ns)}.` +
    (plan.more_memory ? ` ${plan.more_memory[0].toUpperCase()}${plan.more_memory.slice(1)}.` : '');
}

function kindBar(byKind) {
  const total = Object.values(byKind).reduce((a, b) => a + b, 0);
  const bar = el('div', {class: 'stack', style: 'height:12px;margin-top:5px'});
  const legend = el('div', {class: 'legend', style: 'margin-top:5px'});
  for (const kind of kinds) {
    if (!byKind[kind]) continue;
    bar.append(el('i', {style: `width:${100 * byKind[kind] / total}%;background:var(--${kind})`}));
    legend.append(el('span', {}, swatch('--' + kind), kindWords(kind) + ' ', el('b', {}, bytesText(byKind[kind]))));
  }
  return [bar, legend];
}
function fillLinks() {
  for (const lane of plan.lanes.filter(one => !one.lane.startsWith('compute'))) {
    const moved = Object.values(lane.bytes).reduce((a, b) => a + b, 0);
    const rate = lane.busy_ns > 0 ? (moved / lane.busy_ns).toFixed(1) + ' GB/s' : '';
    const direction = lane.lane.startsWith('load') ? lane.lane.replace('load', 'host to device') :
      lane.lane.startsWith('store') ? lane.lane.replace('store', 'device') + ' to host' : lane.lane.replace('>', ' to ');
    const copies = lane.lane.replace(/\d+$/, '').replace(/.*>.*/, 'copie') + 's';
    const what = lane.lane.startsWith('network') ? `${count(lane.actions)} exchanges with other processes` :
      `${bytesText(moved)} in ${count(lane.actions)} ${copies}, ${rate}`;
    $('links').append(
      el('div', {class: 'row-title'}, el('span', {}, el('b', {}, direction), ` busy ${percent(lane.busy_ns / stepNs)}`),
         el('span', {class: 'muted'}, what)),
      el('div', {class: 'meter'}, el('i', {style: `width:${100 * lane.busy_ns / stepNs}%`})));
    if (moved > 0) $('links').append(...kindBar(lane.bytes));
  }
}
function fillMemory() {
  for (const tier of tiers) {
    const t = plan[tier];
    $('memory').append(
      el('div', {class: 'row-title'}, el('span', {}, el('b', {}, tier), ` ${capText(t.cap_bytes)}`),
         el('span', {class: 'muted'}, `reserved ${bytesText(t.arena_bytes)}, driver and process ${bytesText(t.overhead_bytes)}, ` +
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
    const words = w.speedup === 0 ? 'does not fit' : (gain > 0 ? '+' : '') + gain.toFixed(1) + ' %';
    $('what-ifs').append(el('tr', {}, cell(w.change), cell(words)));
  }

  $('names-card').hidden = plan.names.length === 0;
  for (const [role, words] of plan.names) $('names').append(el('div', {}, el('dt', {}, role), el('dd', {}, words)));

  for (const [name, words] of [...plan.facts, ['policy', plan.policy]]) {
    $('facts').append(el('tr', {}, cell(name), cell(words)));
  }
}

function fillLaneLegend() {
  $('lane-legend').replaceChildren();
  const seen = new Set(lanes.filter((_, l) => runs(l)).flatMap(lane => lane.columns.kind.map(k => plan.actions.phases[k])));
  const chunks = new Set(map.columns.map(column => column[1]));
  for (const phase of ['forward', 'backward', 'again', 'update']) {
    if (!byChunk && seen.has(phase)) $('lane-legend').append(el('span', {}, swatch('--' + phase), phaseNames[phase]));
  }
  for (const [k, colourName] of kChunkColours.entries()) {
    if (!byChunk || !chunks.has(k)) continue;
    const alike = [...chunks].filter(c => c % kChunkColours.length === k);
    $('lane-legend').append(el('span', {}, swatch(colourName), `chunk ${alike.slice(0, 3).join(', ')}${alike.length > 3 ? ', …' : ''}`));
  }
  for (const c of causes) {
    if (plan.time.stalls[c.key] > 0) $('lane-legend').append(el('span', {}, swatch(c.colour), c.name));
  }
}
function fillLegends() {
  fillLaneLegend();
  $('interleaved').hidden = !plan.interleaved;
  $('interleaved').textContent = 'Rounds interleave: while one round goes backward, the forward tasks of the next run between its own, ' +
    'the light stripes among the dark. That spreads the loads and stores of both over the whole time.';
  const used = new Set(tiers.flatMap(tier => memory[tier].kinds.map(k => k.kind)));
  // Kinds of one colour are named together.
  const byColour = new Map();
  for (const kind of kinds.filter(k => used.has(k))) {
    byColour.set(css('--' + kind), [...(byColour.get(css('--' + kind)) ?? []), kind]);
  }
  for (const together of byColour.values()) {
    $('kind-legend').append(el('span', {}, swatch('--' + together[0]), together.map(kindWords).join(', ')));
  }
  $('kind-legend').append(el('span', {}, swatch('--overhead'), 'taken by the driver and the process'));
  for (const [key, name] of Object.entries(savings)) $('map-legend').append(el('span', {}, swatch(savingColours[key]), name));
}
